"""The demo's corpus: which docstrings are prose, whose they are, and that the same sources give the same text."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.extract_corpus import Document, Source, as_text, docstrings, documents, paragraphs, source_files

ROOT = Path(__file__).parents[2]
PROSE = "The quick brown fox jumps over the lazy dog and runs away"


def write_module(path: Path, *docstrings: str) -> None:
    """A module of one function per docstring; the module would fail if it were imported."""
    path.parent.mkdir(parents=True, exist_ok=True)
    functions = [f"def function{i}():\n    {text!r}\n" for i, text in enumerate(docstrings)]
    path.write_text("raise AssertionError('imported')\n" + "".join(functions), encoding="utf-8")


def numbered(count: int, of: str) -> list[str]:
    return [f"{PROSE}, which happens {i} times in the module {of}." for i in range(count)]


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        (f"{PROSE}.", [f"{PROSE}."]),
        (f"The quick brown fox jumps\nover the\n   lazy dog.\n\n\n{PROSE}.", 2),
        ("Of only a few words.", []),
        (f"{PROSE}:\n\n    {PROSE} in an indented block", [f"{PROSE}:"]),
        (f">>> {PROSE}", []),
        (f"{PROSE}\n-----------\nthat is a heading", []),
        (f"Args:\n  fox: {PROSE}.", []),
        (f"Raises:\n  ValueError: {PROSE}.", []),
        (f"fox : int\n    {PROSE}.", []),
        ("pop(key) -> value, and this is the longest signature of them all", []),
        (":param fox: the quick brown fox that jumps over the lazy dog", []),
        ("Der Größe äöü ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ", []),
        ("[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 1, 2], and some more words", []),
        (
            f"{PROSE} with :class:`~a.B`, :py:meth:`c <a.B.c>` and ``d``.",
            [f"{PROSE} with a.B, c and d."],
        ),
    ],
)
def test_prose_is_told_from_code_and_tables(docstring, expected):
    found = list(paragraphs(docstring))
    assert (len(found) if isinstance(expected, int) else found) == expected


@given(st.text())
def test_a_paragraph_is_one_line_of_prose(text):
    for paragraph in paragraphs(text):
        assert paragraph == " ".join(paragraph.split()) and len(paragraph.split()) >= 8
        assert paragraph.splitlines() == [paragraph]


def test_every_docstring_of_a_module_is_found_and_nothing_else(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Of the module."""\nclass C:\n    """Of the class."""\n    def method(self):\n        """Of the method."""\n'
        'async def f():\n    """Of the function."""\n    """No docstring."""\nx = "No docstring."\n'
    )
    assert sorted(docstrings(path)) == ["Of the class.", "Of the function.", "Of the method.", "Of the module."]


@pytest.mark.parametrize("source", [b"print 'Python 2'", b"\xff\xfe", b"\0", b"(" * 1000, b"#" * (1 << 21)])
def test_a_file_that_does_not_parse_is_passed_over(tmp_path, source):
    path = tmp_path / "module.py"
    path.write_bytes(source)
    assert list(docstrings(path)) == []
    assert list(docstrings(tmp_path / "absent.py")) == []


def test_sources_are_sorted_named_and_without_tests(tmp_path):
    for name in (
        "b/__init__.py",
        "b/c.py",
        "a.py",
        "b/tests/d.py",
        "b/test_e.py",
        "site-packages/f.py",
        "b/_vendor/g.py",
        "b/h.txt",
    ):
        write_module(tmp_path / name, PROSE)
    assert list(source_files([tmp_path])) == [
        Source("a", "a", tmp_path / "a.py"),
        Source("b", "b", tmp_path / "b" / "__init__.py"),
        Source("b", "b.c", tmp_path / "b" / "c.py"),
    ]


def test_documents_carry_their_package_and_no_paragraph_twice(tmp_path):
    write_module(tmp_path / "a" / "one.py", *numbered(2, "one"))
    write_module(tmp_path / "a" / "two.py", *numbered(2, "one"))  # a copy
    write_module(tmp_path / "b" / "three.py", numbered(1, "one")[0].upper(), *numbered(3, "three"))
    write_module(tmp_path / "b" / "short.py", *numbered(1, "short"))
    assert list(documents(source_files([tmp_path]))) == [
        Document("a", "a.one", numbered(2, "one")),
        Document("b", "b.three", numbered(3, "three")),
    ]


def test_text_is_a_paragraph_a_line_and_a_blank_line_after_a_document():
    chosen = [Document("a", "a", ["One.", "Two."]), Document("b", "b", ["Three."])]
    assert as_text(chosen) == "One.\nTwo.\n\nThree.\n\n"


def test_a_corpus_that_is_there_is_kept_without_overwrite(tmp_path):
    corpus = tmp_path / "docstrings.txt"
    corpus.write_text("mine")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "demo.extract_corpus", "--output-dir", str(tmp_path), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert "--overwrite" in run().stdout
    assert corpus.read_text() == "mine"
    assert "documents of" in run("--overwrite", "--max-bytes=20000").stdout
    assert 20_000 <= corpus.stat().st_size < 200_000
    assert list(tmp_path.iterdir()) == [corpus]
