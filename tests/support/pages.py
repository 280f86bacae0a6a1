"""The pages that README and docs are, and what stands in their blocks of code."""

import re
import shlex
from pathlib import Path

from electra_tf2.__main__ import COMMANDS, predict_words

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "electra_tf2"
PAGES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *PACKAGE.glob("pretrained/*/*.md"),
    ]
}


# Pages whose commands tests run, in this order (test_readme_commands.py).
COMMAND_PAGES = ["README.md", *(f"docs/{page}.md" for page in ("pretraining", "finetuning", "own_tasks"))]


def commands(page: str) -> list[list[str]]:
    """The words of every command in a page's code blocks without a language; others are files or output."""
    return commands_in("".join(blocks(page, "")))


def commands_in(block: str) -> list[list[str]]:
    joined: list[str] = []
    for line in block.replace("\\\n", " ").splitlines():
        if joined and joined[-1].count("'") % 2:  # a quotation over several lines
            joined[-1] += line
        else:
            joined.append(line)
    return [shlex.split(line, comments=True) for line in joined if line.strip()]


def blocks(page: str, language: str) -> list[str]:
    """A page's code blocks in a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", PAGES[Path(page)], re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == language]


def program_of(words: list[str]) -> list[str]:
    """Script and flags of a command `electra ...`."""
    if words[1] == "predict":
        return ["run_finetuning.py", *predict_words(words[2:])]
    return [f"{COMMANDS[words[1]].module}.py", *words[2:]]
