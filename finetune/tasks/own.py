"""Tasks of one's own: the entries of the hparam `tasks` (README, Your own task). Free of TensorFlow."""

from collections.abc import Mapping
from typing import Any

from electra_tf2.finetune.tasks.entry import Entry
from electra_tf2.finetune.tasks.spec import Columns, TextTaskSpec
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import closest

_TEXT_KEYS: dict[str, tuple[type, ...]] = {
    "text_columns": (list,),
    "label_column": (str, int),
    "metric": (str,),
    "header": (bool,),
    "double_unordered": (bool,),
    "files": (dict,),
}
_KEYS: dict[str, dict[str, tuple[type, ...]]] = {
    "classification": _TEXT_KEYS | {"labels": (list,)},
    "regression": _TEXT_KEYS | {"min": (int, float), "max": (int, float)},
    "tagging": {"spans": (bool,)},
    "qa": {"v2": (bool,), "mrqa": (bool,)},
}
_WORDS = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false", dict: "an object"}
_SPLITS = ("train", "dev", "test")
_GREATEST = 2**63 - 1
_HPARAMS = {"qa": {"num_train_epochs": 2.0, "max_seq_length": 512}}


def own_entry(name: str, described: Any) -> Entry:
    """A task as its entry of the hparam `tasks` describes it.

    Raises:
      UserError: no or an unknown type, unknown keys, values of the wrong type, what does not go together.
    """
    where = f"tasks: {name}"
    kind = described.get("type") if isinstance(described, dict) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        raise UserError(f"{where} needs a type, one of {', '.join(_KEYS)}; got {kind!r}")
    options = {key: value for key, value in described.items() if key != "type"}
    for key, value in options.items():
        if key not in _KEYS[kind]:
            valid = _KEYS[kind]
            raise UserError(f"{where}: unknown key {key!r}{closest(key, valid)} ({kind} has {', '.join(valid)})")
        _check_type(f"{where}: {key}", value, *_KEYS[kind][key])
    if kind in ("tagging", "qa"):
        return Entry(kind, options, _HPARAMS.get(kind, {}))
    return Entry(kind, {"spec": _text_spec(where, kind == "regression", options)})


def _check_type(what: str, value: Any, *types: type) -> None:
    right = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    if not right or (isinstance(value, (int, float)) and not abs(value) <= _GREATEST):
        raise UserError(f"{what} is {value!r}, but must be {' or '.join(dict.fromkeys(_WORDS[one] for one in types))}")


def _text_spec(where: str, regression: bool, options: Mapping[str, Any]) -> TextTaskSpec:
    from electra_tf2.finetune.tasks.metrics import METRICS, REGRESSION_METRICS

    texts, labels = options.get("text_columns", ["text"]), options.get("labels")
    if len(texts) not in (1, 2):
        raise UserError(f"{where}: text_columns must be one or two columns, got {texts!r}")
    for column in texts:
        _check_type(f"{where}: a column of text_columns", column, str, int)
    if labels is not None:
        for label in labels:
            _check_type(f"{where}: one of labels", label, str, int)
        if len(labels) < 2 or len({str(label) for label in labels}) < len(labels):
            raise UserError(f"{where}: labels must be different names, at least two, got {labels!r}")
    for split, path in options.get("files", {}).items():
        if split not in _SPLITS:
            raise UserError(f"{where}: files: {split!r} is no split (one of {', '.join(_SPLITS)})")
        _check_type(f"{where}: files: {split}", path, str)
    valid = [name for name in METRICS if (name in REGRESSION_METRICS) == regression]
    metric = options.get("metric", valid[0] if not regression else "spearman")
    if metric not in valid:
        raise UserError(f"{where}: metric {metric!r}{closest(metric, valid)} (one of {', '.join(sorted(valid))})")
    low, high = float(options.get("min", 0.0)), float(options.get("max", 1.0))
    if low >= high:
        raise UserError(f"{where}: min {low:g} must be below max {high:g}")
    columns = Columns(tuple(texts), options.get("label_column", "label"), options.get("header", True))
    return TextTaskSpec(
        columns,
        columns._replace(texts=tuple(map(str, texts)), label=str(columns.label)),
        tuple(dict.fromkeys([metric, "pearson" if regression else "accuracy"])),
        tuple(map(str, labels)) if labels else None,
        value_range=(low, high) if regression else None,
        double_unordered=options.get("double_unordered", False),
        files=options.get("files", {}),
    )
