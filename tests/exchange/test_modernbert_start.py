"""A pre-norm network with T5's positions, brought to ModernBERT's architecture."""

import json
import re

import numpy as np
import pytest

from electra_tf2.exchange.check import our_outputs
from electra_tf2.exchange.modernbert_start import _moved, _turns, modernbert_start
from electra_tf2.exchange.sources import write_folder
from electra_tf2.model.architecture import make_architecture
from electra_tf2.model.positions import sinusoid_frequencies, t5_bucket
from electra_tf2.util.errors import UserError
from tests.exchange import exchange_support as support
from tests.programs import run_program


def test_without_positions_segments_and_content_the_function_is_the_same():
    model = support.with_crc_weights(
        model_hparam_overrides={"norm_style": "pre", "relative_positions": "t5", "num_hidden_layers": 2},
        electra_objective=True,
    )
    weights = dict(model.weights)
    for name, value in weights.items():
        if re.search("position_embeddings|token_type|relative_attention|qkv/bias", name):
            weights[name] = np.zeros_like(value)
        if name.endswith("qkv/kernel"):  # attention is then the same to all tokens, whatever stands there
            weights[name] = np.concatenate(
                [np.zeros_like(value[:, : 2 * value.shape[0]]), value[:, 2 * value.shape[0] :]], 1
            )
    # Embeddings of one length, which the new norm keeps.
    size, hidden = weights["electra/embeddings_project/kernel"].shape
    columns = np.linalg.qr(np.random.default_rng(0).normal(size=[hidden, size + 1]))[0]
    columns = columns - columns.mean(0)
    weights["electra/embeddings_project/kernel"] = np.linalg.qr(columns)[0][:, :size].T.astype(np.float32)
    weights["electra/embeddings_project/bias"] = np.zeros(hidden, np.float32)
    weights["electra/embeddings/LayerNorm/gamma"] = np.ones(size, np.float32)
    weights["electra/embeddings/LayerNorm/beta"] = np.zeros(size, np.float32)
    model = model._replace(weights=weights)
    np.testing.assert_allclose(
        our_outputs(modernbert_start(model))["states"], our_outputs(model)["states"], atol=2e-4, rtol=0
    )


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
    new = make_architecture(
        "small", {"hidden_size": 64, "num_attention_heads": 2, "architecture": "modernbert"}, 600, 32
    )
    table = np.array([-0.5 * (row % 16) - (2.0 if row >= 16 else 0.0) for row in range(32)])
    query, key = _turns(table, old, new, layer=1)
    frequencies = np.array(sinusoid_frequencies(32, new.theta(1)))
    distances = np.arange(-20, 21)
    first, second = key[:16], key[16:]
    angles = np.outer(distances, frequencies)
    scores = (query[:16] * (first * np.cos(angles) - second * np.sin(angles))).sum(1) / 32**0.5
    wanted = np.array([table[t5_bucket(int(distance), 32, 128)] for distance in distances])
    spread = [np.exp(values) / np.exp(values).sum() for values in (scores, wanted)]
    assert 0.5 * abs(spread[0] - spread[1]).sum() < 0.2


@pytest.mark.parametrize("overrides", [{}, {"norm_style": "pre"}, {"relative_positions": "t5"}])
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
    assert cosine is not None and -1 <= float(cosine[1]) <= 1, done.stderr
    saved = json.loads((tmp_path / "start" / "config.json").read_text())["model_hparam_overrides"]
    assert saved["architecture"] == "modernbert" and saved["num_hidden_layers"] == 2 and saved["norm_bias"]
    assert "norm_style" not in saved and "relative_positions" not in saved
