"""Directories as transformers itself saves them, and what it computes with them and with ours.

  python tests/formats/byte_level_oracle.py make FOLDER TEXTS      TEXTS: JSON, a list of texts
  python tests/formats/byte_level_oracle.py load FOLDER TEXTS

"make" writes FOLDER/modernbert, a random ModernBertForMaskedLM with a byte-level BPE tokenizer, FOLDER/bert and
FOLDER/electra with another layer_norm_eps, and beside each an .npz of its states; "load" computes the probabilities
that FOLDER/cola and FOLDER/chunk give. It imports nothing of this project: PyTorch and TensorFlow each need a process
of their own.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
SIZES = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 40}


def byte_level(texts: list[str], lstrip: bool) -> transformers.PreTrainedTokenizerFast:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=list(SPECIAL.values()), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    special = SPECIAL | {"mask_token": tokenizers.AddedToken("[MASK]", lstrip=lstrip, special=True)}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special)


def make(folder: Path, texts: list[str]) -> None:
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "modernbert": ("ModernBertForMaskedLM", {"local_attention": 12, "max_position_embeddings": 64}),
        "bert": ("BertForMaskedLM", {"layer_norm_eps": 0.01, "max_position_embeddings": 64}),
        "electra": ("ElectraForMaskedLM", {"layer_norm_eps": 1e-5, "embedding_size": 16}),
    }
    for name, (kind, own) in kinds.items():
        torch.manual_seed(len(name))
        tokenizer = byte_level(texts, lstrip=name == "modernbert")
        special = {
            f"{part}_token_id": tokenizer.convert_tokens_to_ids(f"[{part.upper()}]") for part in ("pad", "cls", "sep")
        }
        special |= {"bos_token_id": special["cls_token_id"], "eos_token_id": special["sep_token_id"]}
        config_class = getattr(transformers, kind.removesuffix("ForMaskedLM") + "Config")
        config = config_class(vocab_size=len(tokenizer), **SIZES, **special, **own, attn_implementation="eager")
        model = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # biases and layer norms that do something
                parameter += 0.1 * torch.randn(parameter.shape)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        found: dict[str, Any] = {}
        for number, text in enumerate(texts):
            inputs = tokenizer(text, return_tensors="pt")
            given = {key: value for key, value in inputs.items() if name != "modernbert" or key != "token_type_ids"}
            with torch.no_grad():
                output = model(**given, output_hidden_states=True)
                states = output.hidden_states[-1] if name != "modernbert" else model.model(**given).last_hidden_state
            found |= {f"ids/{number}": inputs["input_ids"][0].numpy(), f"states/{number}": states[0].numpy()}
            found[f"logits/{number}"] = output.logits[0].numpy()
        np.savez(folder / f"{name}.npz", **found)


def load(folder: Path, texts: list[str]) -> None:
    found: dict[str, Any] = {}
    for name, kind in (("cola", "SequenceClassification"), ("chunk", "TokenClassification")):
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder / name).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
        for number, text in enumerate(texts):
            inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
            found[f"{name}/offsets/{number}"] = inputs.pop("offset_mapping")[0].numpy()
            inputs.pop("token_type_ids", None)
            with torch.no_grad():
                found[f"{name}/{number}"] = model(**inputs).logits[0].softmax(-1).numpy()
    np.savez(folder / "loaded.npz", **found)


if __name__ == "__main__":
    {"make": make, "load": load}[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
