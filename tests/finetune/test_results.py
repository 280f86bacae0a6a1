"""Results over trials: their statistics, and the table that shows them."""

import pytest

from electra_tf2.finetune.results import summarise_trials, table


def trials(*values):
    return [{"kind": {"dev": {"accuracy": value}}} for value in values]


def test_statistics_are_those_of_a_sample():
    values = summarise_trials(trials(10.0, 30.0, 26.0))["kind"]["dev"]["accuracy"]
    assert values == pytest.approx({"median": 26, "mean": 22, "std": 10.583, "min": 10, "max": 30}, abs=1e-3)
    alone = summarise_trials(trials(10.0))["kind"]["dev"]["accuracy"]
    assert alone == {"median": 10, "mean": 10, "std": 0, "min": 10, "max": 10}


def test_a_split_that_a_trial_lacks_has_no_statistics():
    several = trials(10.0, 30.0)
    several[0]["kind"]["test"] = {"accuracy": 5.0}
    assert summarise_trials(several)["kind"].keys() == {"dev"}


def test_a_table_shows_every_trial_and_what_the_commonest_label_gets():
    lines = table(trials(10.0, 30.0, 26.0), {"kind": {"dev": {"accuracy": 7.0}}}).splitlines()
    assert lines[0].split() == [
        "task",
        "split",
        "metric",
        "trial",
        "1",
        "trial",
        "2",
        "trial",
        "3",
        "median",
        "mean",
        "std",
    ]
    assert lines[1].split() == ["kind", "dev", "accuracy", "10", "30", "26", "26", "22", "10.58"]
    assert lines[2].split() == ["kind", "dev", *["accuracy", "of", "the", "commonest", "label"], "7"]
    assert "median" not in table(trials(10.0), {})
