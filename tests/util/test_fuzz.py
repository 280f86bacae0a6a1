"""Random configurations, seeded: taken, or refused in one line (tests.support.fuzzing, which damages much else)."""

import random
from pathlib import Path

from tests.support.fuzzing import configurations, problem_of


def test_configurations_are_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    case = configurations(tmp_path)
    problems = [problem_of(case, random.Random(f"configuration {number}")) for number in range(2000)]
    assert [(number, problem) for number, problem in enumerate(problems) if problem] == []
    assert 200 < problems.count("") < 1800
