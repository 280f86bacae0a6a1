"""Hugging Face's ModernBERT: its configurations in both spellings, and refusals (the numbers: test_transformers)."""

from pathlib import Path

import numpy as np
import pytest

from electra_tf2.exports.conversions import to_huggingface as convert
from electra_tf2.exports.exportable import Options
from electra_tf2.formats.huggingface_config import network_of
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.tensor_file import write_tensors
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.huggingface_oracle import CLASSES
from tests.support.modernbert import modern
from tests.support.stored_models import to_huggingface

MODERN = CLASSES["ModernBertModel"]


def test_a_detector_of_any_width_is_read_without_a_generator(tmp_path: Path) -> None:
    """A quarter of 300 is no width of heads of an even size, which a generator would need."""
    sizes = {"hidden_size": 300, "num_attention_heads": 5, "num_hidden_layers": 2}
    model = modern(sizes=sizes, embedding_size=300, generator_hidden_size=1.0)
    convert(tmp_path, model, Options())
    again = read_model(str(tmp_path))
    assert again.architecture.head_size == 60 and "discriminator_predictions/dense/kernel" in again.weights


TYPES = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]


def test_both_spellings_mean_the_same(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    plain = MODERN
    old = plain | {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 20.0}
    thetas = {"full_attention": 500.0, "sliding_attention": 20.0}
    parameters = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
    new = plain | {"layer_types": TYPES, "rope_parameters": parameters}
    found = network_of(old, tmp_path)
    assert found == network_of(new, tmp_path)
    overrides = found["model_hparam_overrides"]
    assert (overrides["rope_theta"], overrides["local_rope_theta"]) == (500.0, 20.0)
    overrides = network_of(plain | {"local_rope_theta": None}, tmp_path)["model_hparam_overrides"]
    assert (overrides["rope_theta"], overrides["local_rope_theta"]) == (160000.0, None)
    assert overrides["global_attn_every_n_layers"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": [*TYPES[:3], "chunked_attention"]}, "layer_types .*chunked_attention"),
        ({"layer_types": TYPES[:3]}, "one for each of the 4 layers"),
        ({"layer_types": TYPES[::-1]}, "full_attention in layers 0, n, 2n"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers must be at least 1"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "rope_parameters of full_attention .*yarn",
        ),
        ({"global_rope_theta": -1}, "global_rope_theta must be above 1, got -1"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
        ({"classifier_activation": "relu"}, "classifier_activation 'relu'"),
        ({"norm_bias": 1}, "norm_bias must be bool, got 1"),
        ({"norm_eps": "small"}, "norm_eps must be float, got 'small'"),
        ({"local_attention": 0}, "local_attention 0"),
        ({"attention_dropout": 2.0}, "attention_dropout must be below 1, got 2.0"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers must be int, got '4'"),
    ],
)
def test_configurations_that_we_cannot_read_are_refused_with_the_field(change, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text((golden.CHECKPOINT / "vocab.txt").read_text())
    with pytest.raises(UserError, match=message) as raised:
        network_of(MODERN | change, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("layers.2.attn.Wqkv.weight", np.ones([71, 24], np.float32), r"layers.2.attn.Wqkv.weight is \(71, 24\)"),
        ("final_norm.weight", None, "tensors are missing for electra/encoder/LayerNorm/gamma"),
    ],
)
def test_tensors_that_we_cannot_read_are_refused_with_their_name(name, value, message: str, tmp_path: Path) -> None:
    model = modern(embedding_size=24)
    convert(tmp_path, model, Options("body"))
    tensors = {key: one for key, one in to_huggingface(model, "body").tensors.items() if key != name}
    write_tensors(tmp_path / "model.safetensors", tensors | ({} if value is None else {name: value}))
    with pytest.raises(UserError, match=message):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"embedding_norm": "before"}, "embedding_norm before"),
        ({"type_vocab_size": 2}, "type_vocab_size 2"),
        ({"relative_positions": "coco"}, "relative_positions coco"),
        ({"gated_mlp": False}, "gated_mlp False"),
    ],
)
def test_networks_that_it_does_not_have_are_refused_with_the_reason(sizes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        to_huggingface(modern(sizes=sizes, embedding_size=24))
