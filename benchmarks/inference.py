"""Latency and throughput of inference from Python, beside the network alone.

  python -m benchmarks.inference --model electra_mini
  python -m benchmarks.inference --model electra_deep --generator electra_mini --texts 512

First one text through each call of a loaded model: the first call of a process, and the median of `--calls` calls
after one of another length. Beside it stands the call's network alone, in a graph of just these shapes, on tensors that
are there already: the encoder for predict, states and embed, the detector for replaced, the masked language model for
fill, one pass over the text's masked copies for score. predict is that of a classifier of this encoder with random
weights. Then `--texts` texts of 3 to 120 words at once, in texts a second.

One thread. Time is the processor's, which other work on the machine disturbs less; --wall measures the clock's.
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

from benchmarks.common import ONE_THREAD, SENTENCE, ArgumentParser, processor, seconds, texts_of
from electra_tf2.util.environment import use_processor_only

_ROUNDS = 3


class Contender(NamedTuple):
    """A call on texts, and the network of that call alone, on one text."""

    call: Callable[[Sequence[str]], object]
    network: Callable[[], object]


def classifier(model: Any, folder: Path) -> Any:
    """The model's encoder with a random head of CoLA, from a folder as run_finetuning.py leaves it."""
    import electra_tf2
    from electra_tf2.finetune.starts import configuration
    from electra_tf2.formats.electra_folder import write_folder
    from electra_tf2.inference.model_config import with_config

    source = model.source
    sizes = {name: source.hparams[name] for name in ("model_size", "model_hparam_overrides", "embedding_size")}
    config = configuration(
        sizes | {"task_names": ["cola"], "vocab_file": str(folder / "vocab.txt"), "vocab_size": len(source.tokens)}
    )
    scope = "task_specific/cola"
    width = source.architecture.hidden_size
    weights = {name: value for name, value in source.weights.items() if name.startswith("electra/")}
    random = np.random.default_rng(0)
    weights |= {f"{scope}/dense/kernel": random.normal(size=[width, 2]), f"{scope}/dense/bias": np.zeros(2)}
    if source.architecture.head_style == "modernbert":
        weights |= {f"{scope}/head/dense/kernel": random.normal(size=[width, width])}
        weights |= {f"{scope}/head/dense/bias": np.zeros(width), f"{scope}/head/LayerNorm/gamma": np.ones(width)}
    state = {"cola": {"labels": ["0", "1"]}}
    tuned = source.changed(hparams=dataclasses.asdict(config), weights=weights, task_states=state, is_run=True)
    write_folder(folder / "cola", with_config(tuned))
    return electra_tf2.load(str(folder / "cola"))


def alone(function: Callable[..., Any], inputs: Sequence[np.ndarray]) -> Callable[[], object]:
    """Makes a call of a function's graph for the shapes of these inputs, on tensors."""
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

    network = model.network
    encoded = encode(model.tokenizer, [text], 512)
    states = alone(network.states, encoded)
    calls = {
        "predict": Contender(fine_tuned.predict, states),
        "states": Contender(model.states, states),
        "embed": Contender(model.embed, states),
    }
    if network.language_model is not None:
        masked = text.replace("word", "[MASK]")

        def fill(texts: Sequence[str]) -> object:
            return [model.fill(masked) for _ in texts]

        def masked_word(*rows: Any) -> Any:
            return network.language_model(network.filler(*rows).sequence[:, 1:2])

        words = encoded.lengths[0] - 2  # without [CLS] and [SEP]; each is masked in a copy
        copies = [np.repeat(array, words, 0) for array in encoded]
        calls["fill"] = Contender(fill, alone(network.token_logits, encoded))
        calls["score"] = Contender(model.score, alone(masked_word, copies))
    if network.detector is not None:

        def replaced(texts: Sequence[str]) -> object:
            return [model.replaced(text) for text in texts]

        def detector_score(texts: Sequence[str]) -> object:
            return model.score(texts, method="detector")

        detector = alone(network.replaced_logits, encoded)
        calls["replaced"] = Contender(replaced, detector)
        calls["score, detector"] = Contender(detector_score, detector)
    return calls


class Latency(NamedTuple):
    """Seconds of the first call, of a later one, and of the network alone."""

    first: float
    later: float
    network: float


def latency(contender: Contender, text: str, calls: int, clock: Callable[[], float]) -> Latency:
    def call() -> object:
        return contender.call([text])

    first = seconds(call, clock)
    contender.call([f"{text} and more"])
    later = []
    network = []
    for _ in range(_ROUNDS):
        later.append(statistics.median(seconds(call, clock) for _ in range(calls)))
        network.append(statistics.median(seconds(contender.network, clock) for _ in range(calls)))
    return Latency(first, statistics.median(later), statistics.median(network))


def texts_a_second(contender: Contender, texts: Sequence[str], clock: Callable[[], float]) -> float:
    times = [seconds(lambda: contender.call(texts), clock) for _ in range(_ROUNDS)]
    return len(texts) / statistics.median(times)


def main() -> None:
    parser = ArgumentParser(__doc__)
    parser.add_flag("--model", "electra_mini", "a model, as electra_tf2.load takes it")
    parser.add_flag("--generator", "", "generator of a discriminator that comes without one")
    parser.add_flag("--calls", 40, "calls of which the median counts")
    parser.add_flag("--texts", 512, "texts of the throughput")
    parser.add_flag("--precision", "float32", "type of the arithmetic")
    parser.add_switch("--wall", "measure the time of the clock")
    options = parser.parse_args()
    use_processor_only()
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
    for name, contender in calls.items():
        times = latency(contender, SENTENCE, options.calls, clock)
        line = f"{name:16} {1e3 * times.first:8.1f} {1e3 * times.later:8.2f} {1e3 * times.network:8.2f}"
        print(f"{line} {times.later / times.network:6.2f}", flush=True)
    texts = texts_of(options.texts)
    lengths = encode(model.tokenizer, texts, 512).lengths
    print(f"{len(texts)} texts of {lengths.min()} to {lengths.max()} tokens, {lengths.mean():.1f} on average, texts/s")
    for name in ("predict", "states", "embed", "score, detector"):
        if name in calls:
            print(f"{name:16} {texts_a_second(calls[name], texts, clock):8.1f}", flush=True)


if __name__ == "__main__":
    main()
