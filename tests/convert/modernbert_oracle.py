"""Random ModernBERT directories made by transformers, and what transformers computes with ours.

  python tests/convert/modernbert_oracle.py FOLDER

makes, for every entry of FOLDER/made.json (name -> class and configuration), FOLDER/<name> with random weights and
FOLDER/<name>.npz with states, logits and gradients; for every directory in FOLDER/loaded.json, <directory>.npz with
states and logits. It imports nothing of this project: PyTorch and TensorFlow each need a process of their own.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def outputs(model, inputs: dict) -> tuple:
    output = model(**inputs, output_hidden_states=True)
    states = output.last_hidden_state if "last_hidden_state" in output else None
    if states is None:
        states = model.model(**inputs).last_hidden_state
    if "start_logits" in output:
        return states, torch.stack([output.start_logits, output.end_logits], -1)
    return states, output.logits if "logits" in output else None


def main() -> None:
    folder = Path(sys.argv[1])
    arrays = np.load(folder / "inputs.npz")
    inputs = {name: torch.tensor(arrays[name]) for name in ("input_ids", "attention_mask")}
    for name, (class_name, config) in json.loads((folder / "made.json").read_text()).items():
        torch.manual_seed(len(name))
        made = transformers.ModernBertConfig(**config, attn_implementation="eager")
        model = getattr(transformers, class_name)(made).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # biases and layer norms that do something
                parameter += 0.05 * torch.randn(parameter.shape)
        model.save_pretrained(folder / name)
        states, logits = outputs(model, inputs)
        real = inputs["attention_mask"][..., None]
        loss = (states * real * torch.tensor(arrays["weights"])).sum()
        loss.backward()
        found = {
            f"gradient/{key}": value.grad.numpy() for key, value in model.named_parameters() if value.grad is not None
        }
        found["states"] = states.detach().numpy()
        if logits is not None:
            found["logits"] = logits.detach().numpy()
        np.savez(folder / f"{name}.npz", **found)
    for path in json.loads((folder / "loaded.json").read_text()):
        class_name = json.loads((Path(path) / "config.json").read_text())["architectures"][0]
        model, info = getattr(transformers, class_name).from_pretrained(path, output_loading_info=True)
        problems = [name for kind, names in info.items() for name in names if "keys" in kind]
        assert not problems, (path, problems)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        ids = tokenizer("the man went")["input_ids"]
        with torch.no_grad():
            states, logits = outputs(model.eval(), inputs)
        found = {"states": states.numpy(), "ids": np.array(ids)}
        if logits is not None:
            found["logits"] = logits.numpy()
        np.savez(f"{path}.npz", **found)


if __name__ == "__main__":
    main()
