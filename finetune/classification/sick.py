"""SICK (Marelli et al. 2014): sentence pairs with a relation and a relatedness, in the tables that are distributed.

Either one table, SICK.txt, whose column SemEval_set says which split a pair is of, or one for each split,
SICK_{train,trial,test_annotated}.txt; both are tab-separated and name their columns in the first line.
"""

from pathlib import Path

from electra_tf2.finetune.classification.reading import Row, table_lines
from electra_tf2.finetune.classification.tasks import TextTask
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_text

_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
_ALL, _SET = "SICK.txt", "SemEval_set"
_SETS = {"train": "TRAIN", "dev": "TRIAL", "test": "TEST"}


class SickTask(TextTask):
    """Entailment or relatedness, by the spec's labels; files of the usual names win over SICK's own."""

    def _path(self, split: str) -> Path:
        try:
            return super()._path(split)
        except UserError as error:
            tried = [folder / name for folder in self.folders for name in (_FILES[split], _ALL)]
            for path in tried:
                if path.is_file():
                    return path
            raise UserError(f"{error}; SICK's own would be {', '.join(map(str, tried))}") from None

    def _read_rows(self, split: str) -> list[Row]:
        path = self._path(split)
        if path.suffix != ".txt":
            return super()._read_rows(split)
        lines = table_lines(read_text(path, "task"), False, str(path))
        _, header = next(lines, (0, []))
        places = []
        of_set = [(_SET,)] if path.name == _ALL else []
        for names in (*self.spec.json_columns.texts, self.spec.json_columns.label, *of_set):
            found = [name for name in names if name in header]
            if not found:
                raise UserError(f"{path} has no column {' or '.join(names)}: its first line is {', '.join(header)}")
            places.append(header.index(found[0]))
        rows = []
        for number, cells in lines:
            if len(cells) != len(header):
                raise UserError(f"{path}, line {number}: {len(cells)} columns, but {len(header)} are expected")
            first, second, label, *which = (cells[place] for place in places)
            if not which or which[0] == _SETS[split]:
                if not (first.strip() and second.strip()):
                    raise UserError(f"{path}, line {number}: an empty sentence")
                rows.append(Row(number, (first, second), label))
        if not rows:
            raise UserError(f"{path} holds no pairs of the {split} data")
        return rows
