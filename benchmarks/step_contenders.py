"""One contender of benchmarks/step.py: builds its model, then runs as many steps as a line of stdin says.

Pre-training: ours; tf-models-official's ElectraPretrainer with its task's losses; Hugging Face's ElectraForMaskedLM and
ElectraForPreTraining on PyTorch with tied embeddings, the same masking rate, sampling and losses. Evaluation: their
forward passes without dropout, with the metrics that each computes beside its losses. Fine-tuning: our task CoLA;
tf-models' BertClassifier; Hugging Face's ElectraForSequenceClassification. `ours_recompute` is ours with --recompute
layers, `ours_accumulated` in four micro-batches, `ours_muon` with --optimizer muon (`ours_muon_of_float32`: its
iteration in float32), `ours_whole` with attention on whole arrays at every length, `ours_pre` with norm_style pre,
`ours_pre_rotary` with rotary positions as well, `ours_modernbert` in that architecture at the same FLOPs,
`ours_modernbert_global` without its windows.
`products` are the matrix products of our step and nothing else: its limit.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import write_vocabulary
from benchmarks.step_job import Job, Step, make_job, products
from benchmarks.step_peers import hugging_face, hugging_face_classifier, tf_models, tf_models_classifier
from electra_tf2.model.architecture import inner_width
from electra_tf2.util.environment import before_tensorflow

_WARM_UP_STEPS, _WARM_UP_SECONDS = 3, 20.0  # two steps where three would take longer


def our_hparams(job: Job) -> dict[str, Any]:
    """Hyperparameters that pre-training and fine-tuning have in common."""
    path, size = Path(tempfile.mkdtemp()) / "vocab.txt", job.size
    write_vocabulary(path, size.vocabulary)
    return {
        **size.encoder,
        "max_position_embeddings": max(512, job.length),
        "train_batch_size": job.batch_size,
        "max_seq_length": job.length,
        "precision": job.precision,
        "strategy": "one_device",
        "vocab_file": str(path),
    }


def ours(job: Job, jit_compile: bool, tiles: bool = True, **own: Any) -> Step:
    """`own`: hparams besides those of the job."""
    import tensorflow as tf

    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.model import encoder
    from electra_tf2.pretrain.task import PretrainingTask
    from electra_tf2.training.distribution import make_strategy

    if not tiles:
        encoder.LONG = sys.maxsize
    own |= {"generator_hidden_size": 1 / job.size.generator_share}
    config = PretrainingConfig.from_dict(our_hparams(job) | own)
    strategy = make_strategy(config)
    with strategy.scope():
        task = PretrainingTask(config, strategy, jit_compile)

    def in_graph(step: Callable[..., Any]) -> Callable[..., Any]:
        return tf.function(lambda batch, number: strategy.run(step, args=(batch, number)), autograph=False)

    ids = tf.constant(job.token_ids, tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    if job.what == "evaluation":
        eval_step = in_graph(task.eval_step)
        return lambda: float(eval_step(batch, tf.constant(0, tf.int64))["metrics"]["masked_lm_loss"][0])
    step = in_graph(task.train_step)
    return lambda: float(step(batch, task.optimizer.step)["losses"]["loss"])


def ours_classifier(job: Job, jit_compile: bool) -> Step:
    import tensorflow as tf

    from electra_tf2.configure_finetuning import FinetuningConfig
    from electra_tf2.corpus.tokenization import WordpieceTokenizer
    from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
    from electra_tf2.finetune.model import FinetuningTask
    from electra_tf2.finetune.task import Features
    from electra_tf2.finetune.task_classes import make_tasks
    from electra_tf2.training.distribution import make_strategy

    config = FinetuningConfig.from_dict(our_hparams(job) | {"task_names": ["cola"]})
    task = make_tasks(config, WordpieceTokenizer(config.vocab_file, config.do_lower_case))[0]
    segments = np.zeros([job.length], np.int32)
    rows = [Features(ids, segments, {"label_ids": label}) for ids, label in zip(job.token_ids, job.labels, strict=True)]
    table = FeatureTable([TaskFeatures(task.name, rows, task.labels)], job.length)
    strategy = make_strategy(config)
    with strategy.scope():
        training = FinetuningTask(config, [task], strategy, jit_compile, table, 0)
    batch = next(iter(table.training_batches(job.batch_size, 0)))
    step = tf.function(lambda batch, number: strategy.run(training.train_step, args=(batch, number)), autograph=False)
    return lambda: float(step(batch, training.optimizer.step)["losses"]["loss"])


def make_step(contender: str, job: Job) -> Step:
    """Builds the model of a contender, such as ours_float32, and returns its step.

    Raises:
      SystemExit: there is no such contender.
    """
    program = contender.rsplit("_", 1)[0]
    finetuning = job.what == "finetuning"
    ours_of, tf_models_of = (ours_classifier, tf_models_classifier) if finetuning else (ours, tf_models)
    hugging_face_of = hugging_face_classifier if finetuning else hugging_face
    modernbert: dict[str, Any] = {
        "architecture": "modernbert",
        "intermediate_size": inner_width(job.size.hidden, gated=True),
    }
    makers: dict[str, Callable[[], Step]] = {
        "ours": lambda: ours_of(job, jit_compile=False),
        "products": lambda: products(job),
        "ours_recompute": lambda: ours(job, jit_compile=False, recompute="layers"),
        "ours_accumulated": lambda: ours(job, jit_compile=False, gradient_accumulation_steps=4),
        "ours_muon": lambda: ours(job, jit_compile=False, optimizer="muon"),
        "ours_muon_of_float32": lambda: ours(job, jit_compile=False, optimizer="muon", muon_precision="float32"),
        "ours_pre": lambda: ours(job, jit_compile=False, norm_style="pre"),
        "ours_pre_rotary": lambda: ours(job, jit_compile=False, norm_style="pre", relative_positions="rotary"),
        "ours_modernbert": lambda: ours(job, jit_compile=False, **modernbert),
        "ours_modernbert_global": lambda: ours(job, jit_compile=False, **modernbert, local_attention=0),
        "ours_whole": lambda: ours(job, jit_compile=False, tiles=False),
        "ours_xla": lambda: ours_of(job, jit_compile=True),
        "tf_models": lambda: tf_models_of(job),
        "hugging_face": lambda: hugging_face_of(job, compiled=False),
        "hugging_face_compiled": lambda: hugging_face_of(job, compiled=True),
    }
    if program not in makers or job.precision not in ("float32", "bfloat16"):
        sys.exit(f"unknown contender {contender}: one of {', '.join(makers)} and _float32 or _bfloat16")
    return makers[program]()


def main() -> None:
    before_tensorflow()
    start = time.perf_counter()
    step = make_step(sys.argv[1], make_job(*sys.argv[1:]))
    step()
    for _ in range(_WARM_UP_STEPS - 1):
        step()
        if time.perf_counter() - start > _WARM_UP_SECONDS:
            break
    print("ready", time.perf_counter() - start, flush=True)
    for line in sys.stdin:
        start, processor_start = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            step()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print("seconds", time.perf_counter() - start, time.process_time() - processor_start, most, flush=True)


if __name__ == "__main__":
    main()
