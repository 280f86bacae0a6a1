"""ELECTRA, BERT and ModernBERT as Hugging Face's classes compute them, in plain numpy and float64.

Conversions are checked against it, so that transformers need not be installed: it reads the files that were written, by
their own names and configuration, and shares no line with our networks. Dropout is off. B batch, L length, H hidden.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erf, softmax

Tensors = Mapping[str, np.ndarray]


class Inputs(NamedTuple):
    """int [B, L] each, as a tokenizer of Hugging Face returns them."""

    input_ids: np.ndarray
    attention_mask: np.ndarray
    token_type_ids: np.ndarray


def outputs(
    config: Mapping[str, Any], tensors: Tensors, inputs: Inputs, prefix: str | None = None
) -> dict[str, np.ndarray]:
    """Computes the last layer's "states" [B, L, H], and "logits" where the class has a head.

    Args:
      config: content of config.json; `architectures` names the class.
      tensors: the directory's tensors by name.
      prefix: beginning of the encoder's names; None: as the class has it.
    """
    name = config["architectures"][0]
    if config["model_type"] == "modernbert":
        of_class = "" if name.endswith("Model") else "model."
        return _modernbert(config, tensors, inputs, of_class if prefix is None else prefix)
    if prefix is None:
        prefix = "" if name.endswith("Model") else f"{config['model_type']}."
    states = _encoder(config, tensors, prefix, inputs)
    logits = {} if name not in _HEADS else {"logits": _logits(_HEADS[name], config, tensors, states)}
    return {"states": states} | logits


def _encoder(config: Mapping[str, Any], tensors: Tensors, prefix: str, inputs: Inputs) -> np.ndarray:
    epsilon, heads = config.get("layer_norm_eps", 1e-12), config["num_attention_heads"]
    tables = f"{prefix}embeddings"
    x = tensors[f"{tables}.word_embeddings.weight"].astype(np.float64)[inputs.input_ids]
    x += tensors[f"{tables}.position_embeddings.weight"][: x.shape[1]]
    x += tensors[f"{tables}.token_type_embeddings.weight"][inputs.token_type_ids]
    x = _layer_norm(tensors, f"{tables}.LayerNorm", x, epsilon)
    if f"{prefix}embeddings_project.weight" in tensors:
        x = _dense(tensors, f"{prefix}embeddings_project", x)
    hidden_keys = np.where(inputs.attention_mask, 0.0, -np.inf)[:, np.newaxis, np.newaxis]
    for number in range(config["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{number}"
        parts = [_dense(tensors, f"{layer}.attention.self.{part}", x) for part in ("query", "key", "value")]
        query, key, value = (part.reshape([*x.shape[:2], heads, -1]).transpose([0, 2, 1, 3]) for part in parts)
        scores = query @ key.transpose([0, 1, 3, 2]) / np.sqrt(query.shape[-1]) + hidden_keys
        attended = x + _dense(tensors, f"{layer}.attention.output.dense", _mixed(scores, value))
        x = _layer_norm(tensors, f"{layer}.attention.output.LayerNorm", attended, epsilon)
        inner = _activation(config["hidden_act"], _dense(tensors, f"{layer}.intermediate.dense", x))
        x = _layer_norm(
            tensors, f"{layer}.output.LayerNorm", x + _dense(tensors, f"{layer}.output.dense", inner), epsilon
        )
    return x


class _Head(NamedTuple):
    """A head's layers by name: dense with activation ("": that of the configuration), layer norm, last layer.

    After a layer norm, the last layer is the word table and a bias.
    """

    last: str
    dense: str = ""
    activation: str = ""
    norm: str = ""
    reads_first: bool = False  # the state of [CLS] alone


_TAGS, _SPANS = _Head("classifier"), _Head("qa_outputs")
_BERT_LM = "cls.predictions.transform"
_HEADS = {
    "ElectraForPreTraining": _Head("discriminator_predictions.dense_prediction", "discriminator_predictions.dense"),
    "ElectraForMaskedLM": _Head(
        "generator_lm_head.bias", "generator_predictions.dense", "gelu", "generator_predictions.LayerNorm"
    ),
    "BertForMaskedLM": _Head("cls.predictions.bias", f"{_BERT_LM}.dense", "", f"{_BERT_LM}.LayerNorm"),
    "ElectraForSequenceClassification": _Head("classifier.out_proj", "classifier.dense", "gelu", reads_first=True),
    "BertForSequenceClassification": _Head("classifier", "bert.pooler.dense", "tanh", reads_first=True),
    "ElectraForTokenClassification": _TAGS,
    "BertForTokenClassification": _TAGS,
    "ElectraForQuestionAnswering": _SPANS,
    "BertForQuestionAnswering": _SPANS,
}


def _logits(head: _Head, config: Mapping[str, Any], tensors: Tensors, states: np.ndarray) -> np.ndarray:
    hidden = states[:, 0] if head.reads_first else states
    if head.dense:
        hidden = _activation(head.activation or config["hidden_act"], _dense(tensors, head.dense, hidden))
    if head.norm:
        hidden = _layer_norm(tensors, head.norm, hidden, config.get("layer_norm_eps", 1e-12))
        return hidden @ tensors[f"{config['model_type']}.embeddings.word_embeddings.weight"].T + tensors[head.last]
    logits = _dense(tensors, head.last, hidden)
    return logits[..., 0] if config["architectures"] == ["ElectraForPreTraining"] else logits


def _modernbert(config: Mapping[str, Any], tensors: Tensors, inputs: Inputs, prefix: str) -> dict[str, np.ndarray]:
    """`outputs` of ModernBERT's classes."""
    epsilon, heads = config["norm_eps"], config["num_attention_heads"]
    words = tensors[f"{prefix}embeddings.tok_embeddings.weight"].astype(np.float64)
    x = _layer_norm(tensors, f"{prefix}embeddings.norm", words[inputs.input_ids], epsilon)
    real = inputs.attention_mask.astype(bool)[:, np.newaxis, np.newaxis]
    places = np.arange(x.shape[1])
    for number, kind in enumerate(config["layer_types"]):
        layer = f"{prefix}layers.{number}"
        read = _layer_norm(tensors, f"{layer}.attn_norm", x, epsilon) if number else x
        qkv = _dense(tensors, f"{layer}.attn.Wqkv", read).reshape([*x.shape[:2], 3, heads, -1])
        query, key, value = qkv.transpose([2, 0, 3, 1, 4])
        size = query.shape[-1]
        angles = places[:, np.newaxis] * config["rope_parameters"][kind]["rope_theta"] ** (
            -np.arange(0, size, 2) / size
        )
        turn = np.exp(1j * angles)
        query, key = ((part[..., : size // 2] + 1j * part[..., size // 2 :]) * turn for part in (query, key))
        scores = (query @ key.conj().transpose([0, 1, 3, 2])).real / np.sqrt(size)
        near = np.abs(places[:, np.newaxis] - places) <= config["local_attention"] // 2
        scores = np.where(real & (near | (kind == "full_attention")), scores, -1e9)
        x = x + _dense(tensors, f"{layer}.attn.Wo", _mixed(scores, value))
        inner = _dense(tensors, f"{layer}.mlp.Wi", _layer_norm(tensors, f"{layer}.mlp_norm", x, epsilon))
        first, second = np.split(inner, 2, -1)
        x = x + _dense(tensors, f"{layer}.mlp.Wo", _activation(config["hidden_activation"], first) * second)
    states = _layer_norm(tensors, f"{prefix}final_norm", x, epsilon)
    if config["architectures"][0].endswith("Model"):
        return {"states": states}
    pooled = states
    if config["architectures"][0].endswith("ForSequenceClassification"):
        weight = inputs.attention_mask[..., np.newaxis]
        mean = (states * weight).sum(1) / weight.sum(1)
        pooled = mean if config.get("classifier_pooling") == "mean" else states[:, 0]
    hidden = _activation(config["classifier_activation"], _dense(tensors, "head.dense", pooled))
    hidden = _layer_norm(tensors, "head.norm", hidden, epsilon)
    if not config["architectures"][0].endswith("ForMaskedLM"):
        return {"states": states, "logits": _dense(tensors, "classifier", hidden)}
    table = words if config["tie_word_embeddings"] else tensors["decoder.weight"]
    return {"states": states, "logits": hidden @ table.T + (tensors["decoder.bias"] if config["decoder_bias"] else 0)}


def _mixed(scores: np.ndarray, value: np.ndarray) -> np.ndarray:
    """[B, A, L, L] and [B, A, L, D] -> [B, L, H]: softmax, the sum of values, and heads side by side."""
    context = (softmax(scores, -1) @ value).transpose([0, 2, 1, 3])
    return context.reshape([*context.shape[:2], -1])


def _dense(tensors: Tensors, name: str, x: np.ndarray) -> np.ndarray:
    return x @ tensors[f"{name}.weight"].T.astype(np.float64) + _bias(tensors, name)


def _bias(tensors: Tensors, name: str) -> np.ndarray | float:
    return tensors.get(f"{name}.bias", 0.0)


def _layer_norm(tensors: Tensors, name: str, x: np.ndarray, epsilon: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    normalised = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + epsilon)
    return normalised * tensors[f"{name}.weight"] + _bias(tensors, name)


def _activation(name: str, x: np.ndarray) -> np.ndarray:
    if name == "gelu":
        return 0.5 * x * (1 + erf(x / np.sqrt(2)))
    positive = np.maximum(x, 0)
    return {"relu": positive, "relu2": positive**2, "tanh": np.tanh(x), "linear": x}[name]
