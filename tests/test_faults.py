"""A few of the faults of tests.support.faults (run by hand, it causes all of them), and the tests of our promises."""

import re
from pathlib import Path

import pytest

from tests.support.faults import KINDS, PROGRAMS, Campaign, Fault, Point, campaign
from tests.support.programs import ROOT


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("prediction", [Fault("kill", Point("replace", 0)), Fault("full", Point("write", 1))]),
        ("conversion", [Fault("kill", Point("replace", 3), after=True), Fault("eio", Point("write", 2))]),
    ],
)
def test_a_program_that_met_a_fault_leaves_what_it_leaves_undisturbed(
    name: str, faults: list[Fault], tmp_path: Path
) -> None:
    result = Campaign(name, tmp_path)
    for number, fault in enumerate(faults):
        result.run(number, fault)
    assert not result.problems


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_met_any_of_many_faults_leaves_what_it_leaves_undisturbed(name: str, tmp_path: Path) -> None:
    assert not campaign(name, 10, 0, KINDS, tmp_path).problems


def test_every_test_that_the_promises_name_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")))
    there = {name for path in (ROOT / "tests").rglob("test_*.py") for name in _tests_of(path)}
    assert len(named) > 40 and named <= there, named - there


def _tests_of(path: Path) -> list[str]:
    return re.findall(r"^ *def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
