"""The demo's corpus and task: which docstrings are prose, which paragraphs a task, and what a model has to beat."""

import sysconfig
from pathlib import Path

import pytest
from sklearn.metrics import f1_score

from demo.make_data import bag_of_words, docstrings, extract, make_task, paragraphs, source_files, tagged
from electra_tf2.util.errors import UserError
from tests.support.finetuning import write_lines
from tests.support.programs import run_program

PROSE = "The quick brown fox jumps over the lazy dog and runs away"
SENTENCES = 'When a "file" is open, the (first) line is read. It returns the names of all 3.5 values, too.'


def write_module(path: Path, *docstrings: str) -> None:
    """A module of one function per docstring; the module would fail if it were imported."""
    functions = [f"def function{i}():\n    {text!r}" for i, text in enumerate(docstrings)]
    write_lines(path, "raise AssertionError('imported')", *functions)


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
        (f"Raises:\n  ValueError: {PROSE}.", []),
        (f"fox : int\n    {PROSE}.", []),
        ("pop(key) -> value, and this is the longest signature of them all", []),
        (":param fox: the quick brown fox that jumps over the lazy dog", []),
        ("Der Größe äöü ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ äöü ÄÖÜ", []),
        ("[1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 1, 2], and some more words", []),
        (f"{PROSE} with :class:`~a.B`, :py:meth:`c <a.B.c>` and ``d``.", [f"{PROSE} with a.B, c and d."]),
    ],
)
def test_prose_is_told_from_code_and_tables(docstring, expected):
    found = list(paragraphs(docstring))
    assert (len(found) if isinstance(expected, int) else found) == expected


def test_every_docstring_of_a_module_is_found_and_nothing_else(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Of the module."""\nclass C:\n    """Of the class."""\n    def method(self):\n        """Of the method."""\n'
        'async def f():\n    """Of the function."""\n    """No docstring."""\nx = "No docstring."\n'
    )
    assert sorted(docstrings(path)) == ["Of the class.", "Of the function.", "Of the method.", "Of the module."]
    for source in (b"print 'Python 2'", b"\xff\xfe", b"\0", b"(" * 1000, b"#" * (1 << 21)):  # do not parse
        path.write_bytes(source)
        assert list(docstrings(path)) == []


def test_sources_are_sorted_without_tests_and_no_paragraph_is_there_twice(tmp_path):
    for name in ("a/tests/d.py", "a/test_e.py", "site-packages/f.py", "a/_vendor/g.py"):
        write_module(tmp_path / name, *numbered(2, name))
    write_module(tmp_path / "a" / "__init__.py", *numbered(2, "one"))
    write_module(tmp_path / "a" / "two.py", *numbered(2, "one"))  # a copy
    write_module(tmp_path / "b" / "three.py", numbered(1, "one")[0].upper(), *numbered(3, "three"))
    write_module(tmp_path / "b" / "short.py", *numbered(1, "short"))
    names = [name for name, _ in source_files([tmp_path])]
    assert names == [("a",), ("a", "two"), ("b", "short"), ("b", "three")]
    assert extract([tmp_path], 1 << 20) == [numbered(2, "one"), numbered(3, "three")]
    assert len(extract([tmp_path], 10)) == 1


def test_marks_are_tags_of_the_words_before_them():
    found = tagged(SENTENCES)
    words = [("when", "O"), ("a", "O"), ("file", "O"), ("is", "O"), ("open", "B-comma")]
    assert found is not None and found[:5] == words
    assert [word for word, tag in found if tag == "B-period"] == ["read", "too"] and ("3.5", "O") in found
    one_sentence = SENTENCES.replace("read. It", "read and it")
    for other in (one_sentence, f"{SENTENCES} And more", SENTENCES.replace("names", "names;"), "Too short. It is."):
        assert tagged(other) is None


def test_development_paragraphs_are_of_documents_of_their_own():
    documents = [[SENTENCES.replace("file", f"{name}x")] * 3 for name in "abcdef"]
    parts = make_task(documents, train_size=10, dev_size=4)
    modules = [{words[2][0] for words in part} for part in parts.values()]
    assert list(map(len, parts.values())) == [10, 4] and not modules[0] & modules[1]
    with pytest.raises(UserError, match="1 documents are too few"):
        make_task(documents[:1])


def test_the_bags_score_is_f1_of_the_marks(tmp_path):
    """A word says its tag in training; one of the two marks of the development data follows another word."""
    write_lines(tmp_path / "train.txt", *["the O", "file O", "open B-comma", "read B-period", ""] * 20)
    write_lines(tmp_path / "dev.txt", *["the O", "file O", "open B-comma", "read O", "", "the O", "list B-period"])
    gold, predicted = ["B-comma", "O", "B-period"], ["B-comma", "B-period", "O"]  # of open, read, list
    expected = 100 * f1_score(gold, predicted, labels=["B-comma", "B-period"], average="micro")
    assert bag_of_words(tmp_path) == pytest.approx(expected)


def test_the_program_writes_corpus_and_task_once(tmp_path, monkeypatch):
    stdlib = sysconfig.get_paths()["stdlib"]
    monkeypatch.setattr(sysconfig, "get_paths", lambda: dict.fromkeys(["stdlib", "purelib", "platlib"], stdlib))
    words = ["--data-dir", str(tmp_path), "--max-bytes", "200000"]
    first, again = (run_program("demo/make_data.py", *words) for _ in range(2))
    assert first.returncode == again.returncode == 0 and "MB of docstrings in" in first.stdout
    assert "are there already" in again.stdout
    assert 200_000 <= (tmp_path / "corpus" / "docstrings.txt").stat().st_size < 400_000
    task = (tmp_path / "finetuning_data" / "punctuation" / "dev.txt").read_text()
    assert {line.split()[1] for line in task.split("\n") if line} == {"O", "B-comma", "B-period"}
