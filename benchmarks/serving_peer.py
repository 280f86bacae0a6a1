"""One way of benchmarks/serving.py, in a process of its own: texts to vectors.

  python serving_peer.py WAY FILES   FILES: {"model": directory, "onnx": file, "int8": file, "calibration": texts}

Asked for {"texts": [...], "size": N, "calls": N}, the texts go through in batches of `size`, as often as `calls` says;
the answer is {"seconds": processor time of a call on all texts, "waited": the clock's, "vectors": [...]}. Ways other
than "electra_tf2" need little of ours.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import answer_questions

Encode = Callable[[list[str]], np.ndarray]


def _tokenized(folder: str) -> Callable[[list[str]], dict[str, np.ndarray]]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_padding()
    tokenizer.enable_truncation(512)

    def encode(texts: list[str]) -> dict[str, np.ndarray]:
        found = tokenizer.encode_batch(texts)
        names = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        return {name: np.array([getattr(one, of) for one in found]) for name, of in names.items()}

    return encode


def electra_tf2(files: dict[str, Any]) -> Encode:
    import electra_tf2 as electra

    model = electra.load(files["model"])
    return lambda texts: np.stack([states.vectors.mean(0) for states in model.states(texts)])


def onnx(files: dict[str, Any], kind: str = "onnx") -> Encode:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(files[kind], options, providers=["CPUExecutionProvider"])
    tokenized = _tokenized(files["model"])
    return lambda texts: session.run(["sentence_embedding"], tokenized(texts))[0]


def transformers(files: dict[str, Any]) -> Encode:
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer, model = AutoTokenizer.from_pretrained(files["model"]), AutoModel.from_pretrained(files["model"])
    model.eval().to(device)

    def encode(texts: list[str]) -> np.ndarray:
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=512, return_tensors="pt").to(device)
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state
        marks = inputs["attention_mask"][:, :, None].to(states.dtype)
        return ((states * marks).sum(1) / marks.sum(1)).cpu().numpy()

    return encode


def openvino(files: dict[str, Any], int8: bool = False) -> Encode:
    import openvino as ov

    tokenized, network = _tokenized(files["model"]), ov.convert_model(files["onnx"])
    if int8:
        import nncf

        samples = nncf.Dataset([tokenized([text]) for text in files["calibration"]])
        network = nncf.quantize(network, samples, model_type=nncf.ModelType.TRANSFORMER)
    settings = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.compile_model(network, "CPU", settings).create_infer_request()
    return lambda texts: request.infer(tokenized(texts))["sentence_embedding"]


WAYS: dict[str, Callable[[dict[str, Any]], Encode]] = {
    "electra_tf2": electra_tf2,
    "ONNX float32": onnx,
    "ONNX int8": lambda files: onnx(files, "int8"),
    "transformers float32": transformers,
    "OpenVINO float32": openvino,
    "OpenVINO int8": lambda files: openvino(files, int8=True),
}


def way() -> Callable[..., dict[str, Any]]:
    """The way of the command line."""
    encode = WAYS[sys.argv[1]](json.loads(sys.argv[2]))

    def answer(texts: list[str], size: int, calls: int) -> dict[str, Any]:
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        started, began = time.process_time(), time.perf_counter()
        for _ in range(calls):
            found = [encode(batch) for batch in batches]
        seconds = (time.process_time() - started) / calls
        waited = (time.perf_counter() - began) / calls
        return {"seconds": seconds, "waited": waited, "vectors": np.concatenate(found).astype(float).round(6).tolist()}

    return answer


if __name__ == "__main__":
    answer_questions(way)
