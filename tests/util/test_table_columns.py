"""Columns of delimited files: names that occur twice, numbers from either end, and tabs within plain text."""

from pathlib import Path
from typing import Any

import pytest

from electra_tf2.util import tables
from electra_tf2.util.errors import UserError


def written(folder: Path, text: str, name: str = "a.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_every_column_keeps_a_name_of_its_own(tmp_path: Path) -> None:
    table = tables.open_table(written(tmp_path, "a,a,a_2\n1,2,3\n"))
    (row,) = table.rows
    assert list(row.values.values()) == ["1", "2", "3"] and row.values["a_2"] == "3"  # the file's own a_2


@pytest.mark.parametrize(("column", "found"), [(0, "1"), (-1, "3"), (-3, "1"), (3, None), (-4, None)])
def test_columns_are_counted_from_either_end(tmp_path: Path, column: int, found: str | None) -> None:
    table = tables.open_table(written(tmp_path, "1,2,3\n"), header=False)
    if found is None:
        with pytest.raises(UserError, match=f"3 columns, but column {column} is needed"):
            tables.place(table, [column])
    else:
        names = tables.place(table, [column])
        assert names is not None and [row.values[names[0]] for row in table.rows] == [found]


@pytest.mark.parametrize("tabs", [1, 2])
def test_lines_with_one_tab_are_text_and_with_more_a_table(tmp_path: Path, tabs: int) -> None:
    path = written(
        tmp_path, "\t".join(["word"] * (tabs + 1)) + "\n" + "\t".join(["other"] * (tabs + 1)) + "\n", "a.txt"
    )

    def rows() -> list[Any]:
        return list(tables.open_table(path, of_line=lambda line: {"text": line}).rows)

    if tabs == 1:
        assert [row.values["text"] for row in rows()] == ["word\tword", "other\tother"]
    else:
        with pytest.raises(UserError, match="is a table by its tabs"):
            rows()
