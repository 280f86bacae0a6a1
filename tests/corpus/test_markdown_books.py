"""Books in Markdown become text that the builders read."""

import subprocess
import sys

from benchmarks.markdown_books import chapters
from electra_tf2.corpus.text_files import Corpus
from tests.support.programs import ROOT

FIRST = "It was a _long_ paragraph--" + "of some words " * 40 + "\nand a second line."
BOOK = f"""# Title: A Book

-------

## CHAPTER I

{FIRST}

Yes.

## CHAPTER II

> Yes.

{FIRST}

The end of [1] the story.
"""


def test_chapters_are_paragraphs_without_markup_titles_and_repetitions():
    first, second = chapters(BOOK, set())
    assert first[0].startswith("It was a long paragraph -- of some words")
    assert first[0].endswith("words and a second line.")
    assert first[1:] == ["Yes."] and second == ["Yes.", "The end of the story."]
    seen = {"the end of the story."}
    assert list(chapters("The end of the story.\n\n***\n\nNo.", seen)) == [["No."]]


def test_the_program_writes_a_file_for_each_book(tmp_path):
    folder = tmp_path / "books" / "Nobody"
    folder.mkdir(parents=True)
    (folder / "A Book.md").write_text(BOOK, encoding="utf-8")
    (tmp_path / "books" / "README.md").write_text("About these books.", encoding="utf-8")

    def run(books):
        words = ["-m", "benchmarks.markdown_books", "--books", str(books), "--output", str(tmp_path / "text")]
        return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)

    done = run(tmp_path / "books")
    assert done.returncode == 0 and "1 books in" in done.stdout, done.stderr
    ((file, _),) = Corpus(str(tmp_path / "text")).files()
    assert (tmp_path / "text" / file).read_text(encoding="utf-8").count("\n\n") == 1
    refused = run(tmp_path / "text")
    assert refused.returncode == 1 and "there is no .md file in" in refused.stderr
