"""Small models of Hugging Face with weights that need no file, and what transformers computes with them.

  python -m tests.support.huggingface_oracle

writes tests/golden/huggingface.npz with transformers and PyTorch (the extra `oracle`); the tests only read it.
"""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Inputs(NamedTuple):
    """int [B, L] each, as a tokenizer of Hugging Face returns them."""

    input_ids: np.ndarray
    attention_mask: np.ndarray
    token_type_ids: np.ndarray


VOCABULARY = 600
LENGTH = 12
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 48,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
_MODERN: dict[str, Any] = {
    "model_type": "modernbert",
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "local_attention": 8,
    "pad_token_id": 0,
    **dict.fromkeys(("bos_token_id", "cls_token_id"), 2),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), 3),
}
_BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
_DETECTOR = {"id2label": {"0": "original", "1": "replaced"}, "label2id": {"original": 0, "replaced": 1}}
# Class -> what differs in its configuration; of several of a class, a word behind it says which.
CLASSES: dict[str, dict[str, Any]] = {
    "ElectraForPreTraining": {"model_type": "electra", "embedding_size": 16},
    "ElectraForMaskedLM": {"model_type": "electra", "embedding_size": 16},
    "ElectraForSequenceClassification": {"model_type": "electra", "embedding_size": 24, "num_labels": 3},
    "ElectraForTokenClassification": {"model_type": "electra", "embedding_size": 16, "num_labels": 5},
    "ElectraForQuestionAnswering": {"model_type": "electra", "embedding_size": 16},
    "BertForMaskedLM": {"model_type": "bert"},
    "BertForSequenceClassification": {"model_type": "bert", "num_labels": 3},
    "ModernBertModel": _MODERN,
    "ModernBertModel global": _MODERN | {"global_attn_every_n_layers": 1, "attention_bias": True},
    "ModernBertForMaskedLM": _MODERN | _BIASES | {"global_attn_every_n_layers": 2, "norm_eps": 1e-3},
    "ModernBertForMaskedLM untied": _MODERN | {"tie_word_embeddings": False, "mlp_bias": True},
    "ModernBertForTokenClassification detector": _MODERN
    | _DETECTOR
    | {"global_rope_theta": 500.0, "local_rope_theta": 20.0},
    "ModernBertForSequenceClassification": _MODERN | {"num_labels": 3, "classifier_bias": True},
    "ModernBertForSequenceClassification mean": _MODERN | {"num_labels": 2, "classifier_pooling": "mean"},
    "ModernBertForTokenClassification": _MODERN | {"num_labels": 5},
    "ModernBertForQuestionAnswering": _MODERN,
}


def config_of(name: str) -> dict[str, Any]:
    """config.json of one of CLASSES."""
    common = {} if name.startswith("Modern") else _COMMON
    config = common | {"architectures": [name.split(" ")[0]]} | CLASSES[name]
    labels = config.pop("num_labels", None)
    if labels is not None:
        config["id2label"] = {str(number): f"label {number}" for number in range(labels)}
    return config


def inputs() -> Inputs:
    """Three rows: whole, padded, and with two segments."""
    random = np.random.RandomState(5)
    ids = random.randint(5, VOCABULARY, [3, LENGTH])
    mask, segments = np.ones_like(ids), np.zeros_like(ids)
    mask[1, 7:], ids[1, 7:] = 0, 0
    segments[2, 5:] = 1
    return Inputs(ids, mask, segments)


def crc_tensors(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, np.ndarray]:
    """Tensors that are a function of their names."""
    tensors = {}
    for name, shape in shapes:
        x = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
        scale = 0.3 if "embeddings" in name else 1 / np.sqrt(shape[-1])
        is_norm = "LayerNorm" in name or "norm." in name
        if is_norm or name.endswith("bias"):
            scale = 0.1
        tensors[name] = ((1.0 if is_norm and name.endswith("weight") else 0.0) + scale * x).astype(np.float32)
    return tensors


def main() -> None:
    import torch
    import transformers

    arrays: dict[str, np.ndarray] = {}
    families = {"electra": "Electra", "bert": "Bert", "modernbert": "ModernBert"}
    for name in CLASSES:
        values = config_of(name)
        [class_name] = values.pop("architectures")
        config = getattr(transformers, f"{families[values.pop('model_type')]}Config")(**values)
        model = getattr(transformers, class_name)._from_config(config, attn_implementation="eager").eval()
        trained = {key: value for key, value in model.state_dict().items() if value.dtype == torch.float32}
        tied = ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "generator_lm_head.weight"]
        tied += ["decoder.weight"] if config.tie_word_embeddings else []
        tensors = crc_tensors((key, tuple(value.shape)) for key, value in trained.items() if key not in tied)
        print(
            model.load_state_dict({k: torch.tensor(v) for k, v in tensors.items()}, strict=False), model.tie_weights()
        )
        batch = {key: torch.tensor(value) for key, value in inputs()._asdict().items()}
        if name.startswith("Modern"):
            del batch["token_type_ids"]
        with torch.no_grad():
            output, states = model(**batch), model.base_model(**batch).last_hidden_state
        arrays[f"{name}/shapes"] = np.array(
            [f"{key} {','.join(map(str, value.shape))}" for key, value in tensors.items()]
        )
        arrays[f"{name}/states"] = states.numpy()
        if "start_logits" in output:
            arrays[f"{name}/logits"] = torch.stack([output.start_logits, output.end_logits], -1).numpy()
        elif "logits" in output:
            arrays[f"{name}/logits"] = output.logits.numpy()[:, :3] if "MaskedLM" in name else output.logits.numpy()
    file = Path(__file__).parents[1] / "golden" / "huggingface.npz"
    np.savez_compressed(file, allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
