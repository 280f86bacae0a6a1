"""Pages that the site makes of other files: the notebook, and the help of every command."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from electra_tf2.__main__ import COMMANDS  # noqa: E402

NOTEBOOK = "docs/first_steps.ipynb"
HELP = "<!-- help of every command -->"


def on_files(files: Files, config: Any) -> Files:
    """The notebook becomes a page, its figures files beside it."""
    text, figures = notebook_page((ROOT / NOTEBOOK).read_text(encoding="utf-8"))
    files.append(File.generated(config, NOTEBOOK.replace(".ipynb", ".md"), content=text))
    for name, data in figures.items():
        files.append(File.generated(config, f"docs/{name}", content=data))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # which has nothing else there
    if HELP in markdown:
        markdown = markdown.replace(HELP, "\n".join(map(command_help, COMMANDS)))
    return markdown.replace("first_steps.ipynb)", "first_steps.md)")


def notebook_page(notebook: str) -> tuple[str, dict[str, bytes]]:
    """A notebook's markdown, and its figures: file name -> PNG."""
    parts, figures = [], {}
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"first_steps_{len(figures)}.png"
                figures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![what the cell above draws]({name})")
            elif printed := "".join(output.get("text", data.get("text/plain", []))):
                parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts) + "\n", figures


def command_help(name: str) -> str:
    words = [sys.executable, "-m", "electra_tf2", name, "--help", "all"]
    environment = os.environ | {"COLUMNS": "84"}  # what fits beside both of the site's columns
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=environment).stdout
    printed = re.sub(re.escape(str(ROOT)) + "/?", "", printed.replace("python -m electra_tf2", "electra"))
    return f"## electra {name}\n\n```text\n{printed}```\n"
