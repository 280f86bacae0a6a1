"""The table of mutations fits the code, so that it can be tried, and a change leaves no trace."""

import re
from collections import Counter

import pytest

from tests.support.mutations import ROOT, TABLE, Mutation, applied, mutations

# But for those of papers that are not there.
MUTATIONS = [
    one
    for one in mutations(TABLE.read_text())
    if (ROOT / one.file).exists() or not one.file.startswith("electra_tf2/papers/")
]


def test_no_change_is_listed_twice():
    assert len(MUTATIONS) >= 60
    assert [name for name, count in Counter(one.name for one in MUTATIONS).items() if count > 1] == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_code_has_the_old_text_once_and_the_tests_exist(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.old != mutation.new
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert not name or re.search(rf"^def {name.partition('[')[0]}\(", (ROOT / file).read_text(), re.MULTILINE)


CODE = "a = 1\nb = a + 1\n"


def test_a_change_is_made_meanwhile(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    before = path.stat().st_mtime
    with pytest.raises(KeyboardInterrupt), applied(Mutation("code.py", "", "a + 1", "a - 1", ()), tmp_path):
        assert path.read_text() == "a = 1\nb = a - 1\n" and int(path.stat().st_mtime) != int(before)
        raise KeyboardInterrupt
    assert path.read_text() == CODE and path.stat().st_mtime == before


@pytest.mark.parametrize("old", ["a + 2", "1"])
def test_a_text_that_is_not_there_once_is_not_changed(tmp_path, old):
    (tmp_path / "code.py").write_text(CODE)
    with (
        pytest.raises(ValueError, match="the old text occurs"),
        applied(Mutation("code.py", "", old, "", ()), tmp_path),
    ):
        raise AssertionError
    assert (tmp_path / "code.py").read_text() == CODE


@pytest.mark.parametrize(
    "table",
    ["code.py\n- a\n+ b\n  test", "code.py: x\n- a\n+ b", "code.py: x\n+ b\n- a\n  test", "code.py: x\n- a\n  t"],
)
def test_a_paragraph_that_is_no_mutation_is_refused(table):
    with pytest.raises(ValueError, match="not a mutation"):
        mutations(table)
