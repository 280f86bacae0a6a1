"""The peer of benchmarks/inference.py: latency and throughput of an encoder of the same size in transformers.

  cd benchmarks && PYTHON inference_peer.py --layers 4 --hidden-size 192 --vocab ../pretrained/electra_mini/vocab.txt

PYTHON has torch and transformers, in a process of its own, since PyTorch and TensorFlow do not go together in one. The
weights are random, which costs the same; transformers' ELECTRA has no norms before branches and no relative positions.
One text from string to numpy, and many texts in batches of 32, as they come and sorted by length. Processor time, one
thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

SENTENCE = "The model reads every word in its place and says what came before, that year when all went"


def texts_of(number: int, longest: int = 120) -> list[str]:
    """Texts of 3 to `longest` words, most of them short, the same in every run."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.lognormal(2.8, 0.8, number), 3, longest).astype(int)
    return [" ".join(random.choice(SENTENCE.split(), length)) for length in lengths]


def seconds(call: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    found = []
    for _ in range(calls):
        start = clock()
        call()
        found.append(clock() - start)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("hidden-size", 192), ("texts", 512), ("calls", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--vocab", required=True)
    options = parser.parse_args()
    import torch
    import transformers

    torch.set_num_threads(1)
    tokenizer = transformers.BertTokenizerFast(options.vocab)
    sizes = transformers.ElectraConfig(
        vocab_size=len(tokenizer),
        embedding_size=128,
        hidden_size=options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=options.hidden_size // 32,
        intermediate_size=4 * options.hidden_size,
    )
    model = transformers.ElectraModel(sizes).eval()

    def states(texts: list[str]) -> list[np.ndarray]:
        found = []
        for start in range(0, len(texts), 32):
            batch = tokenizer(
                texts[start : start + 32], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            with torch.inference_mode():
                found.append(model(**batch).last_hidden_state.numpy())
        return found

    texts, clock = texts_of(options.texts), time.process_time
    seconds(lambda: states([SENTENCE]), 3, clock)
    took = [statistics.median(seconds(lambda: states([SENTENCE]), options.calls, clock) for _ in range(3))]
    for rows in (texts, sorted(texts, key=len)):
        took.append(seconds(lambda rows=rows: states(rows), 3, clock))  # type: ignore[misc]
    versions = f"transformers {transformers.__version__}, PyTorch {torch.__version__}"
    print(f"{versions}, {options.layers} layers of {options.hidden_size}, float32, one thread")
    print(f"one text {1e3 * took[0]:.2f} ms; texts/s {len(texts) / took[1]:.1f}, sorted {len(texts) / took[2]:.1f}")


if __name__ == "__main__":
    main()
