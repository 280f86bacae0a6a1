"""Imports point one way: run_* -> pretrain | finetune -> exchange -> training -> corpus, model -> util; no circle.

Read from the sources, so nothing is imported. Imports inside functions count for the direction of packages, not for
circles and for what a program loads when it starts; those for types alone count for the first two.
"""

import ast
import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What a package may import beside itself.
ALLOWED: dict[str, set[str]] = {
    "util": set(),
    "model": {"util"},
    "corpus": {"util"},
    "training": {"model", "util"},
    "exchange": {"corpus", "model", "training", "util"},
    "pretrain": {"corpus", "exchange", "model", "training", "util"},
    "finetune": {"corpus", "exchange", "model", "training", "util"},
    "analysis": {"corpus", "exchange", "finetune", "pretrain", "util"},
}
# Modules of the root that packages may import; all others are programs.
CONFIGURATIONS = {"configure_pretraining", "configure_finetuning"}
LIBRARIES = CONFIGURATIONS | {"flops_computation"}
PROGRAMS = sorted(path.stem for path in ROOT.glob("*.py") if "run(main" in path.read_text(encoding="utf-8"))


def modules() -> dict[str, Path]:
    """Dotted name -> file of all modules of the product."""
    paths = [*ROOT.glob("*.py"), *itertools.chain(*((ROOT / package).rglob("*.py") for package in ALLOWED))]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
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
        ours = next((one for one in (name, name.rpartition(".")[0]) if one in MODULES), None)
        found.add(ours or name.partition(".")[0])
    return frozenset(found - {module})


def test_packages_import_what_lies_below_them() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "demo", "recipes"} == ALLOWED.keys()
    for module in MODULES:
        package = module.partition(".")[0]
        if package not in ALLOWED:
            continue
        for name in imported(module, everywhere=True):
            top = name.partition(".")[0]
            if top in ALLOWED:
                assert top in ALLOWED[package] | {package}, f"{module} imports {name}"
            elif top in MODULES:
                allowed = set() if package in ("util", "model", "corpus", "training") else LIBRARIES
                assert top in allowed, f"{module} imports {name}"


def test_no_circle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path, module])
        if module not in done:
            for name in imported(module, everywhere=False) & MODULES.keys():
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


@pytest.mark.parametrize("program", [*PROGRAMS, *sorted(CONFIGURATIONS)])
def test_programs_start_without_tensorflow(program: str) -> None:
    """So that --help answers at once, and a wrong flag is refused at once."""
    assert not {"tensorflow", "tensorflow_text", "tf_keras", "sklearn", "matplotlib", "torch"} & loaded(program)


def test_only_programs_read_flags() -> None:
    """What is decided by flags is handed on as arguments."""
    readers = {module for module in MODULES if "absl" in imported(module, everywhere=True)}
    assert readers <= {*PROGRAMS, "util.flags"}
