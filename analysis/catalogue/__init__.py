"""The analyses, one file each, found by name: a docstring whose first line says what it shows, and `analyse`.

`analyse(request, figure)` returns the numbers, which run_analysis.py writes as JSON, and draws the figure at that path
without its suffix. Nothing is imported before an analysis is asked for.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

from electra_tf2.analysis.request import Request
from electra_tf2.util.catalogue import module_names


def names() -> tuple[str, ...]:
    return module_names(__name__)


def descriptions() -> str:
    """A line for each analysis: its name and the first line of its docstring."""
    lines = []
    for name in names():
        doc = ast.get_docstring(ast.parse((Path(__path__[0]) / f"{name}.py").read_text(encoding="utf-8"))) or ""
        lines.append(f"  {name:11} {doc.splitlines()[0]}")
    return "\n".join(lines)


def analyse(name: str, request: Request, figure: Path) -> dict[str, Any]:
    """The numbers of an analysis, as JSON takes them."""
    return importlib.import_module(f"{__name__}.{name}").analyse(request, figure)
