"""Shows that papers are beside the core: takes one out of a copy, and lints, checks and tests what is left.

  python -m tests.support.without_paper            every paper, one after the other
  python -m tests.support.without_paper mpa pmi    some
  python -m tests.support.without_paper --of-today one of them, another one each day (CI)

Out go its folder in electra_tf2/papers, the recipes that name it or extend those that do, and its tests
(tests/papers/test_NAME*.py). Documents still speak of it, so tests of documents are left out.
"""

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from electra_tf2.config.papers import paper_names
from electra_tf2.config.recipes import read_recipe

ROOT = Path(__file__).parents[2]
OF_DOCUMENTS = ("tests/test_readme.py", "tests/test_readme_commands.py", "tests/test_names.py")


def copy_without(paper: str, target: Path) -> None:
    """Copies what git knows, or would know, but for the files of a paper."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    recipes = {f"electra_tf2/recipes/{path.name}" for path in recipes_of(paper)}
    places = (f"electra_tf2/papers/{paper}/", f"tests/papers/test_{paper}", f"tests/support/papers/{paper}")
    for name in listed.stdout.decode().splitlines():
        belongs_to_paper = name.startswith(places)
        # git also lists files that were deleted and not yet committed.
        if not belongs_to_paper and name not in recipes and (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def recipes_of(paper: str) -> list[Path]:
    return [
        path
        for path in (ROOT / "electra_tf2" / "recipes").glob("*.json")
        if "extends" in json.loads(path.read_text(encoding="utf-8")) and read_recipe(path.stem).get("paper") == paper
    ]


def failures(paper: str, tests: list[str]) -> list[str]:
    """The commands that fail without the paper."""
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        copy_without(paper, Path(folder))
        ignored = [word for name in OF_DOCUMENTS for word in ("--ignore", name)]
        for words in (
            ["ruff", "check", "."],
            ["mypy"],
            ["pytest", "-n", "2", "-p", "no:cacheprovider", *ignored, *(tests or ["tests"])],
        ):
            print(f"without {paper}: {' '.join(words[:2])}", flush=True)
            if subprocess.run([sys.executable, "-m", *words], cwd=folder).returncode:
                failed.append(f"without {paper}: {' '.join(words)}")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("papers", nargs="*", help="[all]")
    parser.add_argument("--of-today", action="store_true", help="one of all papers, by the date")
    parser.add_argument("--tests", nargs="*", default=[], help="what pytest runs [everything]")
    values = parser.parse_args()
    papers = values.papers or paper_names()
    if values.of_today:
        papers = [papers[datetime.date.today().toordinal() % len(papers)]]
    failed = []
    for paper in papers:
        failed += failures(paper, values.tests)
    print("\n".join(failed) or f"all pass without {', '.join(papers)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
