"""Changes a module in one place at a time, and tells which changes its tests do not notice. Run by hand:

    python -m tests.support.mutations pretrain/masking.py tests/pretrain/test_masking.py [--changes 20] [--seed 0]

Comparisons and signs are turned over, numbers are one more, conditions are the other way round, and what should get no
gradient gets one. The changes are drawn from all that there can be, and made in a copy of the tree. The exit code is 1
if one survives; whether it matters is for a reader to say.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "data", "demo_data", "dist")
_PAIRS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.And: ast.Or,
}
OTHERS = _PAIRS | {other: operator for operator, other in _PAIRS.items()}


def changed(node: ast.AST) -> ast.AST | None:
    """A copy of the node that means something else; None of a node that is left as it is."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.BinOp | ast.BoolOp) and type(other.op) in OTHERS:
        other.op = OTHERS[type(other.op)]()
    elif isinstance(other, ast.Compare) and type(other.ops[0]) in OTHERS:
        other.ops[0] = OTHERS[type(other.ops[0])]()
    elif isinstance(other, ast.IfExp):
        other.body, other.orelse = other.orelse, other.body
    elif isinstance(other, ast.Call) and ast.unparse(other.func) == "tf.stop_gradient":
        return other.args[0]
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub | ast.Not):
        return other.operand
    elif isinstance(other, ast.Constant) and isinstance(other.value, int | float) and not isinstance(other.value, bool):
        other.value += 1
    else:
        return None
    return other


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yields every change that there can be: a title, and the text of the module with it."""
    for number, node in enumerate(ast.walk(ast.parse(source))):
        new = changed(node)
        if new is None:
            continue
        tree = ast.parse(source)
        _replace(tree, list(ast.walk(tree))[number], new)
        title = f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)} becomes {ast.unparse(new)}"
        yield title, ast.unparse(ast.fix_missing_locations(tree))


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    """Puts a node in the place of another, wherever in a tree that is."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", help="a file of electra_tf2/")
    parser.add_argument("tests", nargs="+", help="what pytest runs")
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, Path(folder) / "tree", symlinks=True, ignore=LEFT_OUT))
        path = tree / "electra_tf2" / options.module
        command = f"{sys.executable} -B -m pytest -x -q -n 0 -p no:cacheprovider".split() + options.tests

        def passes() -> bool:
            environment = os.environ | {"PYTHONPATH": str(tree)}
            return not subprocess.run(command, cwd=tree, env=environment, capture_output=True).returncode

        every = list(mutants(path.read_text(encoding="utf-8")))
        assert passes(), "the tests fail without a change"
        chosen = random.Random(options.seed).sample(every, min(options.changes, len(every)))
        for title, source in chosen:
            path.write_text(source, encoding="utf-8")
            survives = passes()
            survived += survives
            print(f"{'SURVIVED' if survives else 'noticed'}: {title}", flush=True)
        print(f"{len(chosen)} of {len(every)} changes, {survived} survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
