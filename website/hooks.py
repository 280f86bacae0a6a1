"""Makes the site of `make docs` out of docs/ and what lies elsewhere: README, cards of models, results, the notebook.

Links are written as they hold in the repository, and rewritten here to where the pages are on the site.
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
# Where files of the repository outside docs/ are on the site.
PAGES = {
    "README.md": "index.md",
    NOTEBOOK: "first_steps.md",
    "benchmarks/RESULTS.md": "RESULTS.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
    **{
        path.relative_to(ROOT).as_posix(): f"models/{path.parent.name}.md"
        for path in sorted(ROOT.glob("electra_tf2/pretrained/*/README.md"))
    },
}
SOURCES = {page: source for source, page in PAGES.items()}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie outside docs/, the notebook's figures, and the style sheet."""
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
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # which has nothing else there
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = (with_links(part, source, page.file.src_uri, files) for part in parts[::2])
    return "".join(parts)


def with_links(text: str, source: str, page: str, files: Files) -> str:
    """Text of a file of the repository with links for its page; a link to a file that the site lacks becomes its text.

    Raises:
      FileNotFoundError: a link leads nowhere.
    """

    def link(match: re.Match[str]) -> str:
        label, target, heading = match["label"], match["target"], match["heading"] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = PAGES.get(path, path.removeprefix("docs/"))
        if not (ROOT / path).exists() and files.get_file_from_path(found) is None:  # figures of the notebook
            raise FileNotFoundError(f"{source}: {target}")
        if files.get_file_from_path(found) is None:
            return label[1:-1]
        return f"{label}({posixpath.relpath(found, posixpath.dirname(page) or '.')}{heading})"

    return re.sub(r"(?P<label>\[[^\[\]]*\])\((?P<target>[^)#:\s]+)(?P<heading>#[^)]*)?\)", link, text)


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
