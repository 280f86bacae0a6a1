"""The few calls of transformers and PyTorch that programs of cards make, on our own reader of Hugging Face directories.

A program runs without either package, and a name that it should not use is an error.
"""

import contextlib
import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports.conversions import outputs
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.network import LOGITS
from tests.support.exports import program_of_card


class _BatchEncoding(dict):
    """Arrays of one text, and what the tokenizer knows of its tokens."""

    def __init__(self, row: Any, **further: Any) -> None:
        arrays = {"input_ids": row.ids, "attention_mask": row.attention_mask, "token_type_ids": row.type_ids}
        super().__init__({name: np.array([values]) for name, values in (arrays | further).items()})
        self.row = row

    def word_ids(self) -> list[int | None]:
        return self.row.word_ids

    def sequence_ids(self, batch_index: int) -> list[int | None]:
        assert batch_index == 0
        return self.row.sequence_ids

    def char_to_token(self, character: int) -> int | None:
        return self.row.char_to_token(character)


class _AutoTokenizer:
    def __init__(self, folder: str) -> None:
        self.tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")

    @classmethod
    def from_pretrained(cls, folder: str) -> "_AutoTokenizer":
        return cls(folder)

    def __call__(
        self, text: Any, pair: str | None = None, *, truncation: Any, max_length: int, return_tensors: str,
        is_split_into_words: bool = False, return_offsets_mapping: bool = False,
    ) -> _BatchEncoding:  # fmt: skip
        assert return_tensors == "pt"
        strategy = truncation if isinstance(truncation, str) else "longest_first"
        self.tokenizer.enable_truncation(max_length, strategy=strategy)
        row = self.tokenizer.encode(text, pair, is_pretokenized=is_split_into_words)
        if return_offsets_mapping:
            return _BatchEncoding(row, offset_mapping=row.offsets)
        return _BatchEncoding(row)


class _AutoModel:
    def __init__(self, folder: str) -> None:
        labels = json.loads((Path(folder) / "config.json").read_text()).get("id2label", {})
        self.config = types.SimpleNamespace(id2label={int(number): label for number, label in labels.items()})
        self.model = read_model(folder)

    @classmethod
    def from_pretrained(cls, folder: str) -> "_AutoModel":
        return cls(folder)

    def __call__(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        logits = outputs(self.model, "main", Encoded(input_ids, attention_mask, token_type_ids))[LOGITS]
        if self.model.class_name.endswith("ForQuestionAnswering"):
            return types.SimpleNamespace(start_logits=logits[..., 0], end_logits=logits[..., 1])
        return types.SimpleNamespace(logits=logits)


_MODELS = ("AutoModelForTokenClassification", "AutoModelForQuestionAnswering", "AutoModelForSequenceClassification")


def printed_by_card(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the program in a Hugging Face directory's card, and returns the lines that it prints."""
    transformers: Any = types.ModuleType("transformers")
    transformers.AutoTokenizer = _AutoTokenizer
    for name in _MODELS:
        setattr(transformers, name, _AutoModel)
    torch: Any = types.ModuleType("torch")
    torch.no_grad = contextlib.nullcontext
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.setitem(sys.modules, "torch", torch)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program_of_card(folder), "card", "exec"), {})
    return printed.getvalue().splitlines()
