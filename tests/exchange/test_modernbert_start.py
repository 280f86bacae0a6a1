"""A pre-norm network with T5's positions, brought to ModernBERT's architecture."""

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest

from electra_tf2.exchange.check import our_outputs
from electra_tf2.exchange.modernbert_start import _moved, _turns, modernbert_start
from electra_tf2.exchange.sources import Model, write_folder
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.positions import sinusoid_frequencies, t5_bucket
from electra_tf2.util.errors import UserError
from tests.exchange import exchange_support as support
from tests.programs import run_program


def plain(keep_content: bool, **overrides: Any) -> Model:
    """A network without positions and segments whose embeddings have one length, which the new norm keeps; its queries
    and keys are zero, or of rank 2, a bias of queries among them, which the slowest pair holds."""
    sizes = {"norm_style": "pre", "relative_positions": "t5", "num_hidden_layers": 2}
    model = support.with_crc_weights(model_hparam_overrides=sizes | overrides, electra_objective=True)
    weights = dict(model.weights)
    hidden, random = model.architecture.hidden_size, np.random.default_rng(0)
    for name, value in weights.items():
        if re.search("position_embeddings|token_type|relative_attention|qkv/bias", name):
            weights[name] = np.zeros_like(value)
        if name.endswith("qkv/kernel") and name.startswith("electra/"):
            weights[name] = value.copy()
            weights[name][:, : 2 * hidden] = 0
            for start in range(0, 2 * hidden if keep_content else 0, model.architecture.head_size):
                weights[name][:, start : start + 2] = random.normal(size=[hidden, 2]) / 4
        if name.endswith("qkv/bias") and name.startswith("electra/") and keep_content:
            for start in range(0, hidden, model.architecture.head_size):
                weights[name][start : start + 2] = 2.0
    scope = "electra/embeddings"
    size = weights[f"{scope}/word_embeddings"].shape[1]
    weights[f"{scope}/LayerNorm/gamma"], weights[f"{scope}/LayerNorm/beta"] = np.ones([2, size], np.float32) * [
        [1],
        [0],
    ]
    if f"{scope}_project/kernel" in weights:
        columns = random.normal(size=[hidden, size])
        rows = np.linalg.qr(columns - columns.mean(0))[0].T
        weights[f"{scope}_project/kernel"] = rows.astype(np.float32)
        weights[f"{scope}_project/bias"] = np.zeros(hidden, np.float32)
    return model._replace(weights={name: np.asarray(value, np.float32) for name, value in weights.items()})


def difference_of_states(one: Model, other: Model) -> float:
    """The largest difference, each computed with the small number in the norms that the original has."""
    states = []
    for model in (one, other):
        overrides = model.config.model_hparam_overrides | {"norm_eps": 1e-12}
        exact = model._replace(config=dataclasses.replace(model.config, model_hparam_overrides=overrides))
        states.append(our_outputs(exact)["states"])
    return float(np.abs(states[0] - states[1]).max())


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"share_layers": "all"},
        {"type_vocab_size": 0},
        {"first_norm": True, "local_attention": 0, "norm_eps": 1e-12},
    ],
)
def test_the_function_is_the_same_but_for_positions(overrides):
    model = plain(False, **overrides)
    made = modernbert_start(model)
    assert made.architecture.norm_eps == 1e-5 and made.architecture.local_attention == 128
    assert difference_of_states(made, model) < 2e-5


def test_content_on_the_slowest_pair_hardly_turns():
    model = plain(True)
    assert difference_of_states(modernbert_start(model), model) < 0.02
    silent = {name: value for name, value in plain(False).weights.items() if "qkv" in name}
    assert difference_of_states(model._replace(weights=model.weights | silent), model) > 0.2


def test_heads_look_to_the_same_side_as_before():
    model, name = plain(False), "electra/encoder/relative_attention"
    far, right = np.arange(32) % 16, np.arange(32) >= 16
    left_or_right = [np.where(right == (head % 2 == 1), -0.3 * far, -4.0) for head in range(2)]
    heads = model.architecture.num_attention_heads
    table = np.stack([left_or_right[head % 2] for head in range(heads)], 1).astype(np.float32)
    looking = model._replace(weights=model.weights | {name: table})
    mirrored = model._replace(weights=model.weights | {name: np.roll(table, 16, 0)})
    near = difference_of_states(modernbert_start(looking), looking)
    assert near < 0.5 * min(difference_of_states(other, looking) for other in (model, mirrored))


def test_embeddings_as_wide_as_the_layers_are_one_table_too():
    model = plain(False, hidden_size=32, num_attention_heads=2)
    assert model.architecture.embedding_size == 32
    assert difference_of_states(modernbert_start(model), model) < 2e-5


def test_what_queries_and_keys_say_of_each_other_is_kept_up_to_its_rank():
    random = np.random.default_rng(0)
    for rank, kept in ((14, True), (32, False)):
        queries, keys = random.normal(size=[65, rank]), random.normal(size=[64, rank])
        padding = [(0, 0), (0, 32 - rank)]
        moved = _moved(np.pad(queries, padding), np.pad(keys, padding))
        assert np.allclose(moved[0] @ moved[1].T, queries @ keys.T) == kept
        slow = [*range(9, 16), *range(25, 32)]
        assert not np.delete(moved[0], slow, 1).any() and moved[0][:, slow].any(0).all()


def test_a_bias_of_distances_becomes_turning_biases():
    old = make_architecture("small", {"hidden_size": 64, "num_attention_heads": 2, "relative_positions": "t5"}, 600, 32)
    modern = {"hidden_size": 64, "num_attention_heads": 2, "architecture": "modernbert", "rope_theta": 10000.0}
    new = make_architecture("small", modern, 600, 32)
    table = np.array([-0.5 * (row % 16) - (2.0 if row >= 16 else 0.0) for row in range(32)])
    query, key = _turns(table, old, new)
    frequencies = np.array(sinusoid_frequencies(32, new.rope_theta))
    distances = np.arange(-20, 21)
    first, second = key[:16], key[16:]
    angles = np.outer(distances, frequencies)
    scores = (query[:16] * (first * np.cos(angles) - second * np.sin(angles))).sum(1) / 32**0.5
    wanted = np.array([table[t5_bucket(int(distance), 32, 128)] for distance in distances])
    spread = [np.exp(values) / np.exp(values).sum() for values in (scores, wanted)]
    assert 0.5 * abs(spread[0] - spread[1]).sum() < 0.2


_T5 = {"norm_style": "pre", "relative_positions": "t5"}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"norm_style": "pre"},
        {"relative_positions": "t5"},
        _T5 | {"gated_mlp": True},
        _T5 | {"num_attention_heads": 32},
    ],
)
def test_another_network_is_refused(overrides):
    with pytest.raises(UserError, match="starts from a pre-trained network with norm_style pre"):
        modernbert_start(support.with_crc_weights(model_hparam_overrides=overrides))


def test_the_program_writes_a_folder_to_go_on_from(tmp_path):
    overrides = {"norm_style": "pre", "relative_positions": "t5", "num_hidden_layers": 2}
    write_folder(tmp_path / "old", support.with_crc_weights(model_hparam_overrides=overrides))
    command = ["--from", f"{tmp_path}/old", "--to", f"{tmp_path}/start", "--architecture", "modernbert"]
    refused = run_program("convert_model.py", *command, "--format", "onnx")
    assert refused.returncode == 2 and "--architecture modernbert: for --format electra" in refused.stderr
    done = run_program("convert_model.py", *command)
    cosine = re.search(r"the cosine of its states to those before is (-?\d\.\d\d)", done.stdout)
    assert cosine is not None and float(cosine[1]) > 0.1, done.stderr
    assert "left out: generator, generator_predictions" in done.stdout
    saved = json.loads((tmp_path / "start" / "config.json").read_text())["model_hparam_overrides"]
    assert saved["architecture"] == "modernbert" and saved["num_hidden_layers"] == 2 and saved["norm_bias"]
    assert "norm_style" not in saved and "relative_positions" not in saved
