"""Hooks of mkdocs for `make docs`: add README, model cards, results and the notebook, which lie outside docs/.

Links are written as they hold in the repository, and are rewritten to the pages' places on the site.
"""

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
NOTEBOOK = "docs/first_steps.ipynb"
# Files of the repository outside docs/, and their places on the site.
PAGES = {
    "README.md": "index.md",
    NOTEBOOK: "first_steps.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/RESULTS.md": "RESULTS.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
for _card in sorted(ROOT.glob("electra_tf2/pretrained/*/README.md")):
    PAGES[_card.relative_to(ROOT).as_posix()] = f"models/{_card.parent.name}.md"
SOURCES = {page: source for source, page in PAGES.items()}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside docs/, the notebook's figures, and the style sheet."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == NOTEBOOK:
            text, figures = notebook_page(text)
            for name, data in figures.items():
                files.append(File.generated(config, name, content=data))
        files.append(File.generated(config, page, content=text))
    style = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    files.append(File.generated(config, "style.css", content=style))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Rewrites the links of a page, but not in code blocks."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it would list only this page
    uri = page.file.src_uri
    source = SOURCES.get(uri, f"docs/{uri}")
    # The pieces are text and code by turns, text first.
    pieces = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    for index in range(0, len(pieces), 2):
        pieces[index] = with_links(pieces[index], source, uri, files)
    return "".join(pieces)


def with_links(text: str, source: str, page: str, files: Files) -> str:
    """Rewrites links to pages of the site. A link to a file that the site lacks becomes plain text.

    Args:
      source: the text's file in the repository. page: its place on the site.

    Raises:
      FileNotFoundError: a link's target does not exist.
    """

    def link(match: re.Match[str]) -> str:
        label = match["label"]
        target = match["target"]
        heading = match["heading"] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        target_page = PAGES.get(path, path.removeprefix("docs/"))
        is_on_site = files.get_file_from_path(target_page) is not None
        if not is_on_site and not (ROOT / path).exists():
            raise FileNotFoundError(f"{source}: {target}")
        if not is_on_site:
            return label[1:-1]
        relative = posixpath.relpath(target_page, posixpath.dirname(page) or ".")
        return f"{label}({relative}{heading})"

    return re.sub(r"(?P<label>\[[^\[\]]*\])\((?P<target>[^)#:\s]+)(?P<heading>#[^)]*)?\)", link, text)


def notebook_page(notebook: str) -> tuple[str, dict[str, bytes]]:
    """Converts a notebook to Markdown. Returns it with the figures, file name -> PNG."""
    pieces = []
    figures = {}
    for cell in json.loads(notebook)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
        else:
            pieces.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"first_steps_{len(figures)}.png"
                figures[name] = base64.b64decode("".join(data["image/png"]))
                pieces.append(f"![what the cell above draws]({name})")
                continue
            printed = "".join(output.get("text", data.get("text/plain", [])))
            if printed:
                pieces.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(pieces) + "\n", figures
