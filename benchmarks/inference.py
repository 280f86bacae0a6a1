"""Latency and throughput of inference from Python, beside the network alone.

  python -m benchmarks.inference --model electra_mini
  python -m benchmarks.inference --model electra_deep --generator electra_mini --texts 512

One text through each call of a loaded model: the first call of a process, and the median of `--calls` calls after one
of another length. "network" is the call's network alone, in a graph of just these shapes, on tensors that are there
already: of predict, states and embed the encoder, of replaced the detector, of fill the masked language model, of score
one pass over the text's masked copies. predict is that of a classifier of this encoder with random weights. Then
`--texts` texts of 3 to 120 words at once, in texts a second. Time is the processor's, which other work on the machine
disturbs less; --wall measures the clock's. One thread.
"""

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import ONE_THREAD, SENTENCE, parser_of, processor, seconds, texts_of
from electra_tf2.util.environment import quiet_tensorflow

_ROUNDS = 3


class Contender(NamedTuple):
    """A call on texts, and its network alone on one."""

    call: Callable[[Sequence[str]], object]
    network: Callable[[], object]


def classifier(model: Any, folder: Path) -> Any:
    """The model's encoder with a random head of CoLA, from a folder as run_finetuning.py leaves it."""
    import electra_tf2
    from electra_tf2.finetune.starts import configuration
    from electra_tf2.formats.own import write_folder
    from electra_tf2.inference.configured import described

    source = model.source
    sizes = {name: source.hparams[name] for name in ("model_size", "model_hparam_overrides", "embedding_size")}
    config = configuration(
        sizes | {"task_names": ["cola"], "vocab_file": str(folder / "vocab.txt"), "vocab_size": len(source.tokens)}
    )
    scope, width = "task_specific/cola", source.architecture.hidden_size
    weights = {name: value for name, value in source.weights.items() if name.startswith("electra/")}
    random = np.random.default_rng(0)
    weights |= {f"{scope}/dense/kernel": random.normal(size=[width, 2]), f"{scope}/dense/bias": np.zeros(2)}
    if source.architecture.head_style == "modernbert":
        weights |= {f"{scope}/head/dense/kernel": random.normal(size=[width, width])}
        weights |= {f"{scope}/head/dense/bias": np.zeros(width), f"{scope}/head/LayerNorm/gamma": np.ones(width)}
    state = {"cola": {"labels": ["0", "1"]}}
    tuned = source.changed(hparams=dataclasses.asdict(config), weights=weights, task_states=state, is_run=True)
    write_folder(folder / "cola", described(tuned))
    return electra_tf2.load(str(folder / "cola"))


def alone(function: Callable[..., Any], inputs: Sequence[np.ndarray]) -> Callable[[], object]:
    """A function's graph for these shapes, on tensors."""
    import tensorflow as tf

    from electra_tf2.model import kernels

    tensors = [tf.constant(value) for value in inputs]

    def plain(*values: tf.Tensor) -> Any:
        with kernels.off():
            return function(*values)

    graph = tf.function(plain, autograph=False).get_concrete_function(*tensors)
    return lambda: graph(*tensors).numpy()


def contenders(model: Any, fine_tuned: Any, text: str) -> dict[str, Contender]:
    """Lists the calls to time, by name."""
    from electra_tf2.corpus.encoding import encode

    network, masked = model.network, text.replace("word", "[MASK]")
    one = encode(model.tokenizer, [text], 512)
    states = alone(network.states, one)
    found = {"predict": Contender(fine_tuned.predict, states), "states": Contender(model.states, states)}
    found["embed"] = Contender(model.embed, states)
    if network.language_model is not None:
        found["fill"] = Contender(lambda texts: [model.fill(masked) for _ in texts], alone(network.token_logits, one))
        copies = [np.repeat(value, one.lengths[0] - 2, 0) for value in one]
        masked_word = lambda *rows: network.language_model(network.filler(*rows).sequence[:, 1:2])  # noqa: E731
        found["score"] = Contender(model.score, alone(masked_word, copies))
    if network.detector is not None:
        detector = alone(network.replaced_logits, one)
        found["replaced"] = Contender(lambda texts: [model.replaced(text) for text in texts], detector)
        found["score, detector"] = Contender(lambda texts: model.score(texts, method="detector"), detector)
    return found


def latency(one: Contender, text: str, calls: int, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Seconds of the first call, of a later one and of the network alone."""
    first = seconds(lambda: one.call([text]), clock)
    one.call([f"{text} and more"])
    rounds: list[list[float]] = []
    for _ in range(_ROUNDS):
        both = (lambda: one.call([text])), one.network
        rounds.append([statistics.median(seconds(call, clock) for _ in range(calls)) for call in both])
    return first, *(statistics.median(part) for part in zip(*rounds, strict=True))


def main() -> None:
    flags = {"model": "electra_mini", "generator": "", "calls": 40, "texts": 512, "precision": "float32"}
    options = parser_of(__doc__, **flags, wall=False).parse_args()
    quiet_tensorflow()
    os.environ |= ONE_THREAD
    import tensorflow as tf

    import electra_tf2
    from electra_tf2.corpus.encoding import encode

    clock = time.perf_counter if options.wall else time.process_time
    model = electra_tf2.load(options.model, generator=options.generator or None, precision=options.precision)
    with tempfile.TemporaryDirectory() as folder:
        fine_tuned = classifier(model, Path(folder))
    length = encode(model.tokenizer, [SENTENCE], 512).lengths[0]
    print(f"{model!r}, {options.precision}, one thread, {processor()}, TensorFlow {tf.__version__}")
    print(f"one text of {length} tokens, ms of {'wall-clock' if options.wall else 'processor'} time")
    print(f"{'call':16} {'first':>8} {'call':>8} {'network':>8} {'ratio':>6}")
    calls = contenders(model, fine_tuned, SENTENCE)
    for name, one in calls.items():
        first, later, network = latency(one, SENTENCE, options.calls, clock)
        print(
            f"{name:16} {1e3 * first:8.1f} {1e3 * later:8.2f} {1e3 * network:8.2f} {later / network:6.2f}", flush=True
        )
    texts = texts_of(options.texts)
    lengths = encode(model.tokenizer, texts, 512).lengths
    print(f"{len(texts)} texts of {lengths.min()} to {lengths.max()} tokens, {lengths.mean():.1f} on average, texts/s")
    for name in ("predict", "states", "embed", "score, detector"):
        if name in calls:
            run = calls[name].call
            took = statistics.median(seconds(lambda run=run: run(texts), clock) for _ in range(_ROUNDS))  # type: ignore[misc]
            print(f"{name:16} {len(texts) / took:8.1f}", flush=True)


if __name__ == "__main__":
    main()
