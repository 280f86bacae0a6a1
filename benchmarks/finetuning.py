"""Speed of fine-tuning: batches of similar length against padding all of them, in one interleaved run.

  python -m benchmarks.finetuning --data-dir data --task-names cola --vocab-file data/vocab.txt

Rounds of training steps (with dropout, the loss and the update) and of evaluation batches, the two paddings in turn;
the median of the rounds counts. Batches are prepared by tf.data beside the steps, as in a real run. The weights are
random, which costs the same. Settings are those of `run_finetuning.py`: task, model_size, length, precision.
"""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable

from benchmarks.common import seconds, turns
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.util import flags as util_flags

_ROUNDS, _STEPS = 7, 20


def contender(config: FinetuningConfig, fixed_padding: bool) -> tuple[dict[str, Callable[[], float]], float]:
    """Rounds of training and evaluation, which return examples a second, and the mean number of tokens of an input."""
    import tensorflow as tf

    from electra_tf2.corpus.tokenization import WordpieceTokenizer
    from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
    from electra_tf2.finetune.model import FinetuningTask
    from electra_tf2.finetune.task_classes import make_tasks
    from electra_tf2.training.distribution import make_strategy, wants_xla

    tokenizer = WordpieceTokenizer(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    task = make_tasks(config, tokenizer)[0]

    def table(split: str) -> FeatureTable:
        features = TaskFeatures(task.name, task.load(split).features, task.labels)
        return FeatureTable([features], config.max_seq_length, fixed_padding)

    train, dev = table("train"), table(task.evaluation_splits[0])
    strategy = make_strategy(config)
    with strategy.scope():
        training = FinetuningTask(config, [task], strategy, wants_xla(config), train, 0)

    @functools.partial(tf.function, reduce_retracing=True, autograph=False)
    def step(batch: dict[str, tf.Tensor], number: tf.Tensor) -> None:
        strategy.run(training.train_step, args=(batch, number))

    predict = tf.function(lambda batch: training.model.predict(batch, 0).losses, reduce_retracing=True, autograph=False)
    batches, number = iter(train.training_batches(config.train_batch_size, 0)), itertools.count()

    def train_steps(steps: int = _STEPS) -> None:
        for _ in range(steps):
            step(next(batches), tf.constant(next(number), tf.int64))

    def evaluation() -> None:
        for batch in dev.evaluation_batches(config.eval_batch_size):
            predict(batch)

    train_steps(1)
    evaluation()  # traced
    rounds: dict[str, Callable[[], float]] = {
        "training": lambda: _STEPS * config.train_batch_size / seconds(train_steps),
        "evaluation": lambda: len(dev) / seconds(evaluation),
    }
    return rounds, float(train.lengths.mean())


def main() -> int:
    given = util_flags.config_from_flags(FinetuningConfig, with_recipe=False)
    config = dataclasses.replace(given, strategy="one_device")
    (buckets, length), (fixed, _) = contender(config, False), contender(config, True)
    both = {f"buckets {what}": run for what, run in buckets.items()}
    both |= {f"fixed padding {what}": run for what, run in fixed.items()}
    median = {name: statistics.median(values) for name, values in turns(both, _ROUNDS).items()}
    print(
        f"{config.task_names[0]}, {config.model_size}, batch {config.train_batch_size}, {config.precision}: inputs of "
        f"{length:.1f} tokens on average, max_seq_length {config.max_seq_length}"
    )
    for what in buckets:
        ours, padded = median[f"buckets {what}"], median[f"fixed padding {what}"]
        print(
            f"{what:12} buckets {ours:8.1f} examples/s  fixed padding {padded:8.1f} examples/s  {ours / padded:5.2f}x"
        )
    return 0


util_flags.define_hparam_flags(FinetuningConfig)

if __name__ == "__main__":
    util_flags.run(main, __doc__)
