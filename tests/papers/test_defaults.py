"""What a paper is run with where nobody says otherwise, and what its tables are counted with."""

import dataclasses

import pytest

from electra_tf2.config.hparams import default_of, places
from electra_tf2.config.papers import load_paper, paper_config_class, paper_names
from electra_tf2.configure_pretraining import PretrainingConfig

HPARAMS = {
    "amos": {"generator_exits": [], "mixture_temperature": 0.3, "mixture_gradient": -1.0},
    "distilbert": {
        "teacher_sizes": {},
        "distill_temperature": 2.0,
        "distill_token_weight": 5.0,
        "distill_detection_weight": 50.0,
        "distill_hidden_weight": 1.0,
        "init_from_teacher": False,
    },
    "mpa": {
        "mpa_objective": True,
        "mpa_gamma": 0.1,
        "mpa_warmup_steps": None,
        "mpa_stop_gradient": True,
        "mpa_layers": [-1],
        "mpa_heads": [],
    },
    "on_losses": {"aux_tasks": [], "aux_weight": 1.0, "aux_combination": "sum", "aux_steps": 0},
    "pmi": {"mask_unit": "pmi"},
}
OPTIONS_OF_TABLES = {
    "cooccurrence": {"window": 10, "min_count": 5, "top_k": 64, "drop_frequent": 0},
    "document_frequency": {},
    "pmi_vocab": {"size": 800_000, "min_count": 11, "score": "pmi"},
}


@pytest.mark.parametrize("paper", paper_names())
def test_the_hparams_of_a_paper_are_its_authors_where_nobody_gives_others(paper):
    config_class = paper_config_class(paper, PretrainingConfig)
    of_core = {field.name: default_of(field) for field in dataclasses.fields(PretrainingConfig)}
    differ = {}
    for field in dataclasses.fields(config_class):
        default = default_of(field)
        is_new = field.name not in of_core or of_core[field.name] != default
        if is_new and field.name not in places(config_class):
            differ[field.name] = default
    assert differ == HPARAMS[paper]


def test_tables_of_papers_are_counted_as_they_say():
    found = {}
    for paper in paper_names():
        for kind, table in getattr(load_paper(paper, "tables"), "TABLES", {}).items():
            found[kind] = {name: option.default for name, option in table.options.items()}
    assert found == OPTIONS_OF_TABLES
