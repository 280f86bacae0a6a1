"""Small models of Hugging Face with weights that need no file, and what transformers computes with them.

  python -m tests.support.huggingface_oracle

writes tests/golden/huggingface.npz with transformers and PyTorch (the extra `oracle`); the tests only read it.
"""

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tests.support import golden


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
CLASSES: dict[str, dict[str, Any]] = {
    "ElectraForPreTraining": {"model_type": "electra", "embedding_size": 16},
    "ElectraForMaskedLM": {"model_type": "electra", "embedding_size": 16},
    "ElectraForSequenceClassification": {"model_type": "electra", "embedding_size": 24, "num_labels": 3},
    "ElectraForTokenClassification": {"model_type": "electra", "embedding_size": 16, "num_labels": 5},
    "ElectraForQuestionAnswering": {"model_type": "electra", "embedding_size": 16},
    "BertForMaskedLM": {"model_type": "bert"},
    "BertForSequenceClassification": {"model_type": "bert", "num_labels": 3},
}
LABELS = {"ElectraForSequenceClassification": 3, "ElectraForTokenClassification": 5, "BertForSequenceClassification": 3}


def config_of(class_name: str) -> dict[str, Any]:
    """config.json of a class."""
    config = _COMMON | {"architectures": [class_name]} | CLASSES[class_name]
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
        if "LayerNorm" in name or name.endswith("bias"):
            scale = 0.1
        tensors[name] = ((1.0 if "LayerNorm.weight" in name else 0.0) + scale * x).astype(np.float32)
    return tensors


def main() -> None:
    import torch
    import transformers

    arrays: dict[str, np.ndarray] = {}
    for name in CLASSES:
        values = config_of(name)
        config_class = transformers.ElectraConfig if values["model_type"] == "electra" else transformers.BertConfig
        model = getattr(transformers, name)(config_class(**values, attn_implementation="eager")).eval()
        trained = {key: value for key, value in model.state_dict().items() if value.dtype == torch.float32}
        tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "generator_lm_head.weight")
        tensors = crc_tensors((key, tuple(value.shape)) for key, value in trained.items() if key not in tied)
        print(
            model.load_state_dict({k: torch.tensor(v) for k, v in tensors.items()}, strict=False), model.tie_weights()
        )
        with torch.no_grad():
            batch = {key: torch.tensor(value) for key, value in inputs()._asdict().items()}
            output = model(**batch, output_hidden_states=True)
        logits = (
            torch.stack([output.start_logits, output.end_logits], -1) if "start_logits" in output else output.logits
        )
        arrays[f"{name}/shapes"] = np.array(
            [f"{key} {','.join(map(str, value.shape))}" for key, value in tensors.items()]
        )
        arrays[f"{name}/states"] = output.hidden_states[-1].numpy()
        arrays[f"{name}/logits"] = logits.numpy()[:, :3] if "MaskedLM" in name else logits.numpy()
    np.savez_compressed(golden.GOLDEN / "huggingface.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
