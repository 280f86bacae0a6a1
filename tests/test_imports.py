"""Imports point one way, from programs down to util: between wings, and without a circle between modules.

Read from the sources, so nothing is imported. Imports inside functions and for types alone count for the direction of
wings and for circles, not for what a program loads when it starts.
"""

import ast
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "electra_tf2"
# What a wing may import beside itself: some of those above it in this list.
ALLOWED: dict[str, set[str]] = {
    "util": set(),
    "model": {"util"},
    "corpus": {"util"},
    "training": {"model", "util"},
    "exchange.formats": {"corpus", "model", "util"},
    "finetune.tasks": {"exchange.formats", "util"},
    "pretrain.masking_units": {"corpus", "util"},
    "pretrain.hparams": {"model", "pretrain.masking_units", "training", "util"},
    "pretrain.masking": {"corpus", "model", "pretrain.hparams", "pretrain.masking_units", "util"},
    "pretrain.metrics": {"util"},
    "pretrain.objectives": {
        "corpus",
        "exchange.formats",
        "model",
        "pretrain.hparams",
        "pretrain.masking",
        "pretrain.metrics",
        "util",
    },
    "configuration": {"exchange.formats", "finetune.tasks", "model", "pretrain.objectives", "training", "util"},
    "exchange": {"configuration", "corpus", "exchange.formats", "model", "training", "util"},
    "pretrain": {
        "configuration",
        "corpus",
        "exchange",
        "exchange.formats",
        "model",
        "pretrain.hparams",
        "pretrain.masking",
        "pretrain.masking_units",
        "pretrain.metrics",
        "pretrain.objectives",
        "training",
        "util",
    },
    "finetune": {
        "configuration",
        "corpus",
        "exchange",
        "exchange.formats",
        "finetune.tasks",
        "model",
        "training",
        "util",
    },
    "exchange.inference": {  # what users import, above everything that a model can do
        "configuration",
        "corpus",
        "exchange",
        "exchange.formats",
        "finetune",
        "training",
        "util",
    },
    "analysis": {
        "configuration",
        "corpus",
        "exchange",
        "exchange.formats",
        "finetune",
        "finetune.tasks",
        "pretrain",
        "pretrain.objectives",
        "util",
    },
}
CONFIGURATION = {
    "configure_pretraining",
    "configure_finetuning",
}  # a wing in two modules of the root; others are programs
PROGRAMS = sorted(path.stem for path in PACKAGE.glob("*.py") if "def main(" in path.read_text(encoding="utf-8"))


def modules() -> dict[str, Path]:
    """Dotted name -> file of all modules of the product."""
    packages = {wing.partition(".")[0] for wing in ALLOWED}
    paths = [*PACKAGE.glob("*.py"), *itertools.chain(*((PACKAGE / package).rglob("*.py") for package in packages))]
    names = {path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


MODULES = modules()


def imports(tree: ast.AST, everywhere: bool, types: bool) -> Iterator[str]:
    """Names that a module imports: everywhere, or when it is imported itself; and for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "relative imports hide where they point"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
                continue
            yield from imports(node, everywhere, types)


@cache
def imported(module: str, everywhere: bool, types: bool = True) -> frozenset[str]:
    """Modules of ours, and top-level names of others, that a module imports."""
    found = set()
    for name in imports(ast.parse(MODULES[module].read_text(encoding="utf-8")), everywhere, types):
        name = name.removeprefix("electra_tf2.")
        ours = next((one for one in (name, name.rpartition(".")[0]) if one in MODULES), None)
        found.add(ours or name.partition(".")[0])
    return frozenset(found - {module})


def wing_of(module: str) -> str:
    """The configuration, a folder of the top level, or a folder within one that the list names apart."""
    inner = ".".join(module.split(".")[:2])
    return "configuration" if module in CONFIGURATION else inner if inner in ALLOWED else module.partition(".")[0]


def test_wings_import_what_lies_above_them_in_the_list() -> None:
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert found | {"configuration"} == {wing for wing in ALLOWED if "." not in wing}
    wings = list(ALLOWED)
    for number, wing in enumerate(wings):
        assert ALLOWED[wing] <= set(wings[:number]), f"{wing} points back"
    for module in (module for module in MODULES if wing_of(module) in ALLOWED):
        allowed = ALLOWED[wing_of(module)] | {wing_of(module)}
        for name in imported(module, everywhere=True) & MODULES.keys():
            assert wing_of(name) in allowed, f"{module} imports {name}"


def test_no_circle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path, module])
        if module not in done:
            for name in imported(module, everywhere=True) & MODULES.keys():
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())
    assert done == MODULES.keys()


def loaded(module: str) -> set[str]:
    """All that importing a module imports."""
    found, new = set(), {module}
    while new:
        found |= new
        new = set().union(*(imported(name, everywhere=False, types=False) for name in new if name in MODULES)) - found
    return found


@pytest.mark.parametrize("program", [*PROGRAMS, *sorted(CONFIGURATION)])
def test_programs_start_without_tensorflow(program: str) -> None:
    """So that --help answers at once, and a wrong flag is refused at once."""
    assert not {"tensorflow", "tensorflow_text", "tf_keras", "sklearn", "matplotlib", "torch"} & loaded(program)


def test_only_programs_read_flags() -> None:
    """Everything else gets as arguments what flags decide."""
    readers = {module for module in MODULES if "absl" in imported(module, everywhere=True)}
    assert readers <= {*PROGRAMS, "util.flags"}
