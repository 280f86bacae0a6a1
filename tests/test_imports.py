"""Imports point one way, from programs down to util: between floors, and without a circle between modules.

Read from the sources, so nothing is imported. Imports inside functions, for types alone and by name (a text that names
a module) count for the direction and for circles, not for what a program loads when it starts.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "electra_tf2"
# The floors of the house from the ground up. A module imports its own folder and all floors below; on its own floor
# nothing, or the folders to the left where the floor is `ORDERED`. What stands in the root itself imports all.
FLOORS = [
    ["util"],
    ["files"],
    ["config", "settings"],
    ["model", "corpus", "formats"],
    ["training"],
    ["configuration"],
    ["pretrain", "finetune"],
    ["inference", "exports", "papers"],
    ["programs"],
]
ORDERED = {"formats", "exports", "papers"}
CONFIGURATION = {"configure_pretraining", "configure_finetuning"}  # a layer in two modules of the root
PROGRAMS = sorted(f"programs.{path.stem}" for path in PACKAGE.glob("programs/*.py") if path.stem != "__init__")


def modules() -> dict[str, Path]:
    """Dotted name -> file of all modules of the product."""
    names = {path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def imports(tree: ast.AST, everywhere: bool, types: bool) -> Iterator[str]:
    """Names that a module imports: everywhere, or when it is imported itself; and for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, "relative imports hide where they point"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and everywhere:
            if isinstance(node.value, str) and re.fullmatch(r"electra_tf2(\.\w+)+", node.value):
                yield node.value
        elif everywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
                continue
            yield from imports(node, everywhere, types)


@cache
def imported(module: str, everywhere: bool, types: bool = True) -> frozenset[str]:
    """Modules of ours, and top-level names of others, that a module imports."""
    found = set()
    for name in imports(TREES[module], everywhere, types):
        name = name.removeprefix("electra_tf2.")
        ours = next((one for one in (name, name.rpartition(".")[0]) if one in MODULES), None)
        found.add(ours or name.partition(".")[0])
    return frozenset(found - {module})


def folder_of(module: str) -> str:
    """The folder that a module is of, "configuration", or "" of what stands in the root."""
    folder = module.partition(".")[0]
    return "configuration" if module in CONFIGURATION else folder if (PACKAGE / folder).is_dir() else ""


def test_every_folder_stands_on_one_floor() -> None:
    listed = [folder for floor in FLOORS for folder in floor if folder != "configuration"]
    assert len(listed) == len(set(listed))
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= {*listed}


def test_arrows_point_down() -> None:
    height = {folder: number for number, floor in enumerate(FLOORS) for folder in floor}
    wrong = set()
    for module in MODULES:
        here = folder_of(module)
        if here not in height:
            continue
        for name in imported(module, everywhere=True) & MODULES.keys():
            there = folder_of(name)
            if there == here or (there in height and height[there] < height[here]):
                continue
            floor = FLOORS[height[here]]
            if here in ORDERED and there in floor[: floor.index(here)]:
                continue
            wrong.add((module, name))
    assert not wrong, sorted(wrong)


def test_no_paper_needs_another() -> None:
    """Modules beside the folders of papers are for all of them."""
    of_papers = {module: module.split(".")[1] for module in MODULES if re.match(r"papers\.\w+\.", module)}
    for module, paper in of_papers.items():
        assert {of_papers[name] for name in imported(module, everywhere=True) & of_papers.keys()} <= {paper}, module


def test_no_circle() -> None:
    """Imports inside functions and for types are counted, too."""
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


def test_the_demo_starts_without_tensorflow() -> None:
    """Which reports on the machine where it is imported before the environment is set up."""
    names = {name.removeprefix("electra_tf2.") for name in imports_of_demo()}
    assert names & MODULES.keys()
    for name in names & MODULES.keys():
        assert "tensorflow" not in loaded(name), name


def imports_of_demo() -> set[str]:
    """Modules that the demo's modules import."""
    names = set()
    for path in (Path(__file__).parents[1] / "demo").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_only_programs_read_flags() -> None:
    """Everything else gets as arguments what flags decide."""
    readers = {module for module in MODULES if "absl" in imported(module, everywhere=True)}
    assert readers <= {*PROGRAMS, "config.flags"}


_CHANGES = {"add", "append", "extend", "insert", "setdefault", "update"}  # methods that change a table


def statements_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """All that runs when a module is imported: bodies of classes and branches, not those of functions."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
            yield from statements_at_import(node)


def changed_names(node: ast.AST) -> Iterator[str]:
    """Names of the objects whose entries or attributes a statement changes."""
    changed: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        changed = [target for target in node.targets if isinstance(target, ast.Subscript | ast.Attribute)]
    elif isinstance(node, ast.AugAssign):
        changed = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
        changed = [node.func]
    for target in changed:
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_changes_what_another_module_holds(module: str) -> None:
    """What a process can do must not depend on what it imported before: tables say all they hold where they stand."""
    imported_names = set()
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported_names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    changed = {name for node in statements_at_import(TREES[module]) for name in changed_names(node)}
    assert not changed & imported_names
