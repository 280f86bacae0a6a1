"""Text to sentence vectors with the same weights: here, as ONNX, and by what else people serve encoders with.

  python -m benchmarks.serving --model DIRECTORY --peer-python PYTHON --output serving.json

DIRECTORY is a Hugging Face directory of a network that transformers has. PYTHON has torch, transformers, onnxruntime,
openvino and nncf; a way that does not start there is left out and named. This Python needs the extra onnx. Each way
reads the same texts, sentences of docs/*.md, one at a time and in batches, tokenises them, pads a batch to its longest
text, and gives the mean of the last layer's states at real tokens:

  electra_tf2             `load(...).states`, in TensorFlow
  ONNX float32, int8      `convert_model.py --format onnx --part body`, and its quantize_dynamic, in ONNX Runtime
  transformers float32    AutoModel on PyTorch
  OpenVINO float32, int8  the float32 ONNX file as it is, and after nncf.quantize (as transformers, by 64 texts)

Each way has a process of its own with one thread, and they take turns, so that what else runs on the machine meets all
of them. Times are of the processor, the least of the rounds; the cosine is the least of any text's vector with
transformers'.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from onnxruntime.quantization import QuantType, quantize_dynamic

from benchmarks.common import ONE_THREAD, ROOT, Worker, parser_of, processor
from benchmarks.serving_peer import WAYS
from electra_tf2.util.files import write_json

_REFERENCE = "transformers float32"


def start(way: str, python: str, files: dict[str, Any]) -> Worker:
    """A process that encodes texts in one way (benchmarks/serving_peer.py). Raises OSError if it does not start."""
    environment = os.environ | ONE_THREAD | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    worker = Worker([python, "-m", "benchmarks.serving_peer", way, json.dumps(files)], environment)
    worker.ask(texts=["Ready."], size=1, calls=1)
    return worker


def sentences(number: int) -> list[str]:
    """Sentences of our documentation, the same in every run: a text has 4 to 40 words."""
    found = []
    for path in sorted((ROOT / "docs").glob("*.md")):
        prose = re.sub(r"```.*?```|\|.*\||[#*`]", " ", path.read_text(encoding="utf-8"), flags=re.S)
        found += [" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+", prose)]
    kept = [text for text in found if 4 <= len(text.split()) <= 40 and "[" not in text]  # no names of special tokens
    return [kept[place] for place in np.random.default_rng(0).permutation(len(kept))[:number]]


def measured(ways: dict[str, Worker], arguments: Any) -> dict[str, dict[str, Any]]:
    """Milliseconds of one text and texts a second of batches, of each way, and the least cosine."""
    texts = sentences(arguments.texts)
    one, best = texts[: arguments.single], dict.fromkeys(ways, (np.inf, np.inf))
    vectors: dict[str, np.ndarray] = {}
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            alone = way.ask(texts=one, size=1, calls=5)["seconds"] / len(one)
            batched = way.ask(texts=texts, size=arguments.batch, calls=1)
            vectors[name] = np.array(batched["vectors"])
            best[name] = min(best[name][0], alone), min(best[name][1], batched["seconds"] / len(texts))
    exact, found = vectors.get(_REFERENCE, next(iter(vectors.values()))), {}
    for name, (alone, batched) in best.items():
        norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(vectors[name], axis=1)
        cosine = ((exact * vectors[name]).sum(1) / norms).min()
        found[name] = {"ms": 1e3 * alone, "texts_per_second": 1 / batched, "cosine": float(cosine)}
    return found


def main() -> None:
    ways_of = ",".join(WAYS)
    flags = {"batch": 64, "texts": 192, "single": 8, "rounds": 5, "peer_python": "", "output": "", "ways": ways_of}
    arguments = parser_of(__doc__, model=str, **flags).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = {"model": arguments.model, "calibration": sentences(arguments.texts + 64)[-64:]}
        command = [sys.executable, "-m", "electra_tf2.convert_model", "--from", arguments.model, "--format", "onnx"]
        subprocess.run([*command, "--part", "body", "--to", f"{folder}/onnx"], check=True)
        files["onnx"], files["int8"] = f"{folder}/onnx/model.onnx", f"{folder}/int8.onnx"
        quantize_dynamic(files["onnx"], files["int8"], per_channel=True, weight_type=QuantType.QInt8)
        ways = {}
        for name in arguments.ways.split(","):
            own = name == "electra_tf2" or not arguments.peer_python
            try:
                ways[name] = start(name, sys.executable if own else arguments.peer_python, files)
            except OSError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
        found = measured(ways, arguments)
        sizes = ", ".join(f"{kind} {Path(files[kind]).stat().st_size / 1e6:.1f} MB" for kind in ("onnx", "int8"))
    base = found.get(_REFERENCE) or next(iter(found.values()))
    print(f"{processor()}, one thread; files: {sizes}")
    print(f"| | one text, ms | times as fast | batches of {arguments.batch}, texts/s | times as fast | least cosine |")
    print("|---|---|---|---|---|---|")
    for name, of in found.items():
        ratios = base["ms"] / of["ms"], of["texts_per_second"] / base["texts_per_second"]
        print(
            f"| {name} | {of['ms']:.2f} | {ratios[0]:.2f} | {of['texts_per_second']:.0f} | {ratios[1]:.2f} "
            f"| {of['cosine']:.4f} |"
        )
    if arguments.output:
        write_json(arguments.output, {"processor": processor(), "arguments": vars(arguments), "found": found})


if __name__ == "__main__":
    main()
