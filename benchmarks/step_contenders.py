"""One contender of benchmarks/step.py: builds its model, then runs as many steps as it is asked for.

  python -m benchmarks.step_contenders PROGRAM JOB

Questions and answers are lines of JSON: {"steps": N} is answered with the seconds of N steps; with {"per_call": M} a
program of several steps a call takes M of them in each; {"steps": N, "profile": FOLDER} is answered with the lines of a
profile. On a machine with a GPU all contenders run there.

  ours...        our step; VARIANTS lists its forms. ours_xla and what begins so are one program of XLA's, of several
                 steps a call as in the training loop; ours_modernbert has the FLOPs of ours; ours_modernbert_global
                 has no local attention
  tf_models      tf-models-official's ElectraPretrainer with its task's losses; in fine-tuning its BertClassifier
  hugging_face   ElectraForMaskedLM and ElectraForPreTraining on PyTorch with tied embeddings and the same masking rate,
                 sampling and losses; in fine-tuning ElectraForSequenceClassification. hugging_face_compiled is the same
                 under torch.compile
  products       the matrix products of our step and nothing else: its limit

An evaluation is the forward passes of pre-training, with the metrics that each program computes beside its losses.
"""

import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import on_gpu_profile
from benchmarks.common import answer_questions, write_vocabulary
from benchmarks.step_job import Job, Step, product_shapes
from benchmarks.step_peers import hugging_face, hugging_face_classifier, tf_models, tf_models_classifier
from electra_tf2.model.architecture import inner_width
from electra_tf2.util.environment import before_tensorflow

_WARM_UP_STEPS = 3
_WARM_UP_SECONDS = 20.0  # after which no further step warms up
VARIANTS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours_recompute": {"recompute": "layers"},
    "ours_muon": {"optimizer": "muon"},
    "ours_pre": {"norm_style": "pre"},
    "ours_modernbert": {"architecture": "modernbert"},
    "ours_modernbert_global": {"architecture": "modernbert", "local_attention": 0},
    "ours_xla": {},
    "ours_xla_without_kernel": {},
    "ours_xla_plain": {},
    "ours_xla_without_barriers": {},
}
ONE_PROGRAM = tuple(name for name in VARIANTS if name.startswith("ours_xla"))
_KERNELS = contextlib.ExitStack()  # how this process computes the model's formulas


def our_hparams(job: Job) -> dict[str, Any]:
    """Hyperparameters that pre-training and fine-tuning have in common."""
    path = Path(tempfile.mkdtemp()) / "vocab.txt"
    write_vocabulary(path, job.size.vocabulary)
    return {
        **job.size.encoder,
        "max_position_embeddings": max(512, job.length),
        "train_batch_size": job.batch_size,
        "max_seq_length": job.length,
        "precision": job.precision,
        "strategy": "one_device",
        "vocab_file": str(path),
    }


def set_kernels(program: str) -> None:
    """Changes how this process computes the model's formulas, for contenders that leave something out.

    ours_xla_without_kernel: none of the kernels called ..._in_program. ours_xla_plain: TensorFlow's own gradients of
    formulas.
    ours_xla_without_barriers: nothing that keeps XLA from fusing. Called before the model's modules are imported.
    """
    from electra_tf2.model.kernels import barriers, switch

    assert "electra_tf2.model.layers" not in sys.modules
    with_kernel = switch.with_kernel
    materialize = barriers.materialize

    def without_program(kernel: Any, within_program: Any = None) -> Any:
        del within_program
        return with_kernel(kernel)

    def without_barrier(*tensors: Any) -> Any:
        # Vectors keep theirs: the one that bars TensorFlow from computing constants on the host is among them.
        if all(tensor.shape.rank == 1 for tensor in tensors):
            return materialize(*tensors)
        return list(tensors)

    if program == "ours_xla_without_kernel":
        switch.with_kernel = without_program
    elif program == "ours_xla_without_barriers":
        barriers.materialize = without_barrier
    elif program == "ours_xla_plain":
        _KERNELS.enter_context(switch.off())


def ours(job: Job, program: str) -> Step:
    set_kernels(program)
    import tensorflow as tf

    from electra_tf2.configure_pretraining import PretrainingConfig
    from electra_tf2.pretrain.pretraining_task import PretrainingTask
    from electra_tf2.training.device_loop import DeviceLoop
    from electra_tf2.training.distribution import distribute, make_strategy

    hparams = our_hparams(job)
    hparams["generator_hidden_size"] = 1 / job.size.generator_share
    hparams["gradient_accumulation_steps"] = job.micro_batches
    hparams |= VARIANTS[program]
    if "architecture" in hparams:
        hparams["intermediate_size"] = inner_width(job.size.hidden, gated=True)
    config = PretrainingConfig.from_dict(hparams)
    strategy = make_strategy(config)
    with strategy.scope():
        task = PretrainingTask(config, strategy, program in ONE_PROGRAM)
    ids = tf.constant(job.token_ids, tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    if job.what == "evaluation":
        eval_step = _in_graph(strategy, task.eval_step)
        return lambda: eval_step(batch, tf.constant(0, tf.int64))["metrics"]["masked_lm_loss"][0]
    if program not in ONE_PROGRAM:
        step = _in_graph(strategy, task.train_step)
        return lambda: step(batch, task.optimizer.step)["losses"]["loss"]
    data = tf.data.Dataset.from_tensors(batch).repeat()
    loop = DeviceLoop(task, strategy, iter(distribute(strategy, data)))
    return lambda per_call=1: loop.run(per_call, 0, loop.nothing).sums["losses"]["loss"]


def _in_graph(strategy: Any, step: Callable[..., Any]) -> Callable[..., Any]:
    import tensorflow as tf

    return tf.function(lambda batch, number: strategy.run(step, args=(batch, number)), autograph=False)


def ours_classifier(job: Job, program: str) -> Step:
    from electra_tf2.corpus.tokenization import WordpieceTokenizer
    from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
    from electra_tf2.finetune.model import FinetuningTask
    from electra_tf2.finetune.starts import configuration
    from electra_tf2.finetune.tasks import make_tasks
    from electra_tf2.finetune.tasks.task import Features
    from electra_tf2.training.distribution import make_strategy

    config = configuration(our_hparams(job) | VARIANTS[program] | {"task_names": ["cola"]})
    task = make_tasks(config, WordpieceTokenizer(config.vocab_file, config.do_lower_case))[0]
    segments = np.zeros([job.length], np.int32)
    rows = []
    for ids, label in zip(job.token_ids, job.labels, strict=True):
        rows.append(Features(ids, segments, {"label_ids": label}))
    table = FeatureTable([TaskFeatures(task.name, rows, task.labels)], job.length)
    strategy = make_strategy(config)
    with strategy.scope():
        training = FinetuningTask(config, [task], strategy, program in ONE_PROGRAM, table, 0)
    batch = next(iter(table.training_batches(job.batch_size, 0)))
    step = _in_graph(strategy, training.train_step)
    return lambda: step(batch, training.optimizer.step)["losses"]["loss"]


def products(job: Job) -> Step:
    """The products alone, each as often as a step takes it, with both of its gradients."""
    import tensorflow as tf

    def matrix(batch: int, rows: int, columns: int) -> tf.Tensor:
        shape = [rows, columns] if batch == 1 else [batch, rows, columns]
        return tf.cast(tf.random.normal(shape), job.precision)

    operands = []
    for (batch, m, k, n), times in product_shapes(job).items():
        operands.append((matrix(batch, m, k), matrix(batch, k, n), matrix(batch, m, n), times))

    def step() -> tf.Tensor:
        for x, w, y, times in operands:
            for _ in range(times):
                last = tf.matmul(x, w)
                if job.what != "evaluation":
                    tf.matmul(y, w, transpose_b=True)
                    last = tf.matmul(x, y, transpose_a=True)
        return tf.reshape(last, [-1])[0]

    return step


def make_step(program: str, job: Job) -> Step:
    """Builds the model of a program, such as ours, and returns its step.

    Raises:
      SystemExit: there is no such contender.
    """
    from_ours = ours
    from_tf_models = tf_models
    from_hugging_face = hugging_face
    if job.what == "finetuning":
        from_ours = ours_classifier
        from_tf_models = tf_models_classifier
        from_hugging_face = hugging_face_classifier
    makers: dict[str, Callable[[], Step]] = {
        "products": lambda: products(job),
        "tf_models": lambda: from_tf_models(job),
        "hugging_face": lambda: from_hugging_face(job, compiled=False),
        "hugging_face_compiled": lambda: from_hugging_face(job, compiled=True),
    }
    for name in VARIANTS:
        makers[name] = partial(from_ours, job, name)
    if program not in makers or job.precision not in ("float32", "bfloat16"):
        sys.exit(f"unknown contender {program}_{job.precision}: one of {', '.join(makers)} and _float32 or _bfloat16")
    return makers[program]()


def peak_memory() -> float:
    """Bytes: the most that this process ever had of the GPU, without one of the host."""
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            return float(torch.cuda.max_memory_allocated())
    else:
        import tensorflow as tf

        if tf.config.list_logical_devices("GPU"):
            return float(tf.config.experimental.get_memory_info("GPU:0")["peak"])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def contender() -> Callable[..., dict[str, Any]]:
    """Makes the contender of the command line, warmed up; returns the function that answers questions."""
    before_tensorflow()
    start = time.perf_counter()
    step = make_step(sys.argv[1], Job.read(sys.argv[2]))
    float(step())
    for _ in range(_WARM_UP_STEPS - 1):
        float(step())
        if time.perf_counter() - start > _WARM_UP_SECONDS:
            break
    startup = time.perf_counter() - start

    def run(steps: int, per_call: int) -> None:
        call = partial(step, per_call) if per_call > 1 else step
        loss = 0.0
        for _ in range(steps // per_call):
            loss = call()
        float(loss)  # waits for a GPU

    def answer(steps: int, per_call: int = 1, profile: str = "") -> dict[str, Any]:
        if profile:
            try:
                times = on_gpu_profile.profiled(lambda: run(steps, per_call), Path(profile))
            except OSError as error:
                return {"rows": [("profile", str(error))]}
            return {"rows": on_gpu_profile.rows(times, steps)}
        began = time.perf_counter()
        processor_began = time.process_time()
        run(steps, per_call)
        return {
            "seconds": time.perf_counter() - began,
            "processor_seconds": time.process_time() - processor_began,
            "memory": peak_memory(),
            "startup": startup,
        }

    return answer


if __name__ == "__main__":
    answer_questions(contender)
