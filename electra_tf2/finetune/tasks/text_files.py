"""Tables of one or two texts and a label: GLUE's files as they are distributed, those of `datasets`, one's own.

Lines that cannot be used are refused with file and line. A few in a thousand are passed over with a warning instead,
since GLUE's own files (QQP) hold such lines.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_tf2.files import tables
from electra_tf2.files.cells import is_null
from electra_tf2.files.tables import Column, Table, alternatives, names_of
from electra_tf2.finetune.tasks.spans import TextPart, marked_parts
from electra_tf2.settings.built_in import TextSettings
from electra_tf2.util.errors import UserError, closest, shown
from electra_tf2.util.progress import warn

ADVICE_ON_COLUMNS = "--text-column names yours, and --label-column that of labels to train on"
TOLERATED = 0.002  # share of unusable lines in a file


class TextExample(NamedTuple):
    """One or two texts and a label.

    label: a name, a number, or None; fresh from a file, whatever stands there. id: of the example in a submission.
    spans: parts of the texts that the task is about. where: file and line.
    """

    texts: tuple[str, ...]
    label: Any
    id: Any = None
    spans: tuple[TextPart, ...] = ()
    where: str = ""


def open_texts(
    path: Path, settings: TextSettings, content: str | None = None, what: str = "table", **options: Any
) -> Table:
    """Opens a table of texts. Its first line is a header if it names one of the texts, or if the settings say so."""
    names: set[Any] = set()
    for column in settings.texts:
        names.update(alternatives(column))

    def is_header(cells: Sequence[str]) -> bool:
        return settings.header or bool(names.intersection(cells))

    return tables.open_table(
        path,
        what,
        content=content,
        header=is_header,
        delimiter=settings.delimiter,
        quoted=settings.quoted,
        **options,
    )


def read_texts(
    path: Path,
    settings: TextSettings,
    tolerated: float = TOLERATED,
    label_optional: bool = False,
) -> list[TextExample]:
    """Reads the rows of a file.

    Args:
      tolerated: share of unusable lines that are passed over with a warning. 0: none; 1: all, as the original does.
        Between them, rows with an empty text are left out and counted; at 0 and 1 they stay.
      label_optional: labels are None if there is no column of them.

    Raises:
      UserError: file, line and what is wrong with it.
    """
    table = open_texts(path, settings)
    label: list[Column] = [] if settings.label is None else [settings.label]
    if label_optional:
        names = tables.find_columns(table, settings.texts, label)
    else:
        names = tables.find_columns(table, [*settings.texts, *label])
    examples: list[TextExample] = []
    problems: list[str] = []
    without_text: list[str] = []  # where they stand
    num_lines = 0
    for row in table.rows:
        num_lines += 1
        where = table.where(row.line)
        try:
            if row.problem:
                raise UserError(row.problem)
            example = example_of(row.values, settings, where, names, label_optional)
        except UserError as error:
            problems.append(str(error))
            continue
        has_text = all(text.strip() for text in example.texts)
        if 0 < tolerated < 1 and not has_text:
            without_text.append(where)
        else:
            examples.append(example)
    if not examples and not problems:
        if without_text:
            raise UserError(f"{without_text[0]}: an empty text, as in all {num_lines} rows")
        raise UserError(f"{path} holds no examples")
    if without_text:
        warn(
            f"{len(without_text):,} of {num_lines:,} rows are left out, which have an empty text; the first: "
            f"{without_text[0]}"
        )
    if problems:
        if not examples or len(problems) > tolerated * num_lines:
            more = f" ({len(problems) - 1} more like it)" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{more}")
        warn(f"{len(problems)} of {num_lines} lines are left out, which are unusual; the first: {problems[0]}")
    if names and label and table.header and any(example.label == names[-1] for example in examples):
        warn(
            f'{path}: the first line was taken for a header, but its label {names[-1]!r} is one: "header": '
            "false in the task's description keeps that line"
        )
    return examples


def example_of(
    row: dict[str, Any],
    settings: TextSettings,
    where: str,
    names_in_table: Sequence[str] | None = None,
    label_optional: bool = False,
) -> TextExample:
    """Makes the example of a row.

    Args:
      names_in_table: names of the columns of texts and label, if all rows have the same; None: each row has any of the
        names in the settings.

    Raises:
      UserError: a missing column, a text that is none, or a wrong mark of a part.
    """
    texts = texts_of(row, settings, where, names_in_table)
    label = None
    if settings.label is not None:
        names = names_of(settings.label)
        if names_in_table is not None:
            names = tuple(filter(None, names_in_table[len(texts) :]))  # "": the table has no labels
        has_label = any(tables.column_called(row, name) is not None for name in names)
        if has_label or not label_optional:
            label = _value(row, names, where)
    spans: tuple[TextPart, ...] = ()
    if settings.spans:
        spans = marked_parts(settings.spans, texts, row, where)
    return TextExample(texts, label, row.get(settings.id), spans, where)


def texts_of(
    row: dict[str, Any], settings: TextSettings, where: str, names_in_table: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Takes the texts of a row. Arguments and errors as in `example_of`."""
    texts = []
    for index, column in enumerate(settings.texts):
        names = names_of(column)
        if names_in_table is not None:
            names = (names_in_table[index],)
        text = _value(row, names, where)
        if is_null(text):
            text = ""
        if not isinstance(text, str):
            raise UserError(f"{where}: {'/'.join(names)} must be text, got {shown(text)}")
        texts.append(text)
    return tuple(texts)


def _value(row: dict[str, Any], names: Sequence[str], where: str) -> Any:
    """Takes the value under the first of the names that a row has. Raises UserError: it has none of them."""
    for name in names:
        column = tables.column_called(row, name)
        if column is not None:
            return row[column]
    wanted = " or ".join(map(repr, names)) + closest(names[0], row)
    end = "" if wanted.endswith("?") else ";"
    raise UserError(f"{where}: no field {wanted}{end} it has {shown(', '.join(row))}. {ADVICE_ON_COLUMNS}")
