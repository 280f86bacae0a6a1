"""Plain text of books in Markdown, as the builders read it: a paragraph a line, blank lines between chapters.

  python -m benchmarks.markdown_books --books classic-books-markdown --output corpus/books

A heading or a rule ends a chapter; markup, headings and repeated paragraphs are left out. 754 books of the public
domain (github.com/mlschmitt/classic-books-markdown, all but the two above 4 MB) make 326 MB.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import parser_of
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically

_MARKUP = re.compile(r"[_*\\]+|<[^>]+>|\[\^?\d+\]|^[>\s]+")
_RULE = re.compile(r"[-*_\s]*")
_LEAST_LETTERS = 500  # of a chapter; a shorter one goes on with the next, such as a title page
_REPEATABLE = 20  # letters; shorter paragraphs, such as "Yes.", may stand more than once


def chapters(text: str, seen: set[str]) -> Iterator[list[str]]:
    """Paragraphs of each chapter of a book, without those in `seen`, which grows."""
    chapter: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("#") or _RULE.fullmatch(block):
            if sum(map(len, chapter)) >= _LEAST_LETTERS:
                yield chapter
                chapter = []
            continue
        paragraph = " ".join(_MARKUP.sub("", block).replace("--", " -- ").split())
        if paragraph and paragraph.lower() not in seen:
            chapter.append(paragraph)
            if len(paragraph) >= _REPEATABLE:
                seen.add(paragraph.lower())
    if chapter:
        yield chapter


def main() -> None:
    """Writes a text file for each book that has text."""
    options = parser_of(__doc__, books=Path, output=Path).parse_args()
    books = sorted(path for path in options.books.rglob("*.md") if path.name != "README.md")
    seen: set[str] = set()
    try:
        if not books:
            raise UserError(f"--books: there is no .md file in {options.books}")
        written = 0
        for number, path in enumerate(books):
            found = list(chapters(path.read_text(encoding="utf-8", errors="replace"), seen))
            if found:
                text = "\n\n".join("\n".join(chapter) for chapter in found)
                write_atomically(options.output / f"book-{number:04}.txt", text + "\n")
                written += 1
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{written:,} books in {options.output}")


if __name__ == "__main__":
    main()
