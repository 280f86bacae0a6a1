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

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import VOCABULARY, write_vocabulary
from electra_tf2.model.architecture import inner_width
from electra_tf2.util.environment import before_tensorflow

_MASK = 103
_WARM_UP_STEPS, _WARM_UP_SECONDS = 3, 20.0  # two steps where three would take longer


class Size(NamedTuple):
    """Size of a main network (ELECTRA, Table 6); its generator is `hidden / generator_share` wide."""

    hidden: int
    layers: int
    heads: int
    embedding: int
    generator_share: int
    vocabulary: int = VOCABULARY

    @classmethod
    def read(cls, text: str) -> "Size":
        """A name of `SIZES`, or the fields with commas between them."""
        return SIZES[text] if text in SIZES else cls(*map(int, text.split(",")))

    @property
    def encoder(self) -> dict[str, int]:
        """Sizes under the names of the peers' configurations of encoders."""
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
            "embedding_size": self.embedding,
            "vocab_size": self.vocabulary,
        }

    @property
    def generator(self) -> "Size":
        """1/generator_share the width, with the generator's heads as the original has them."""
        share = self.generator_share
        return self._replace(hidden=self.hidden // share, heads=max(1, self.heads // share))


SIZES = {
    "mini": Size(128, 4, 4, 128, 2, 8192),  # what a laptop trains
    "electra_mini": Size(192, 4, 6, 128, 1, 8192),
    "small": Size(256, 12, 4, 128, 4),
    "base": Size(768, 12, 12, 768, 3),
    "large": Size(1024, 24, 16, 1024, 4),
}

Step = Callable[[], object]


class Job(NamedTuple):
    """Settings that all contenders have in common."""

    what: str  # "pretraining", "evaluation" or "finetuning"
    size: Size
    batch_size: int
    length: int
    precision: str

    @property
    def token_ids(self) -> np.ndarray:
        ids = np.random.RandomState(0).randint(1000, self.size.vocabulary, [self.batch_size, self.length])
        ids[:, 0], ids[:, -1] = 101, 102
        return ids

    @property
    def masked_tokens(self) -> int:
        """Number of masked tokens of a sequence."""
        return int((0.15 + 0.005) * self.length)

    @property
    def labels(self) -> np.ndarray:
        """int [B], of two classes."""
        return np.random.RandomState(1).randint(0, 2, [self.batch_size])

    @property
    def masked_batch(self) -> dict[str, np.ndarray]:
        """Inputs masked beforehand, as the peers' pipelines do it."""
        ids = self.token_ids
        count = self.masked_tokens
        rows = range(self.batch_size)
        places = np.stack([1 + np.random.RandomState(i).permutation(self.length - 2)[:count] for i in rows])
        masked = ids.copy()
        np.put_along_axis(masked, places, _MASK, 1)
        return {"ids": ids, "masked": masked, "places": places, "labels": np.take_along_axis(ids, places, 1)}


def product_shapes(job: Job) -> Counter[tuple[int, int, int, int]]:
    """(batch, m, k, n) of each product [m, k] x [k, n] of a step's forward passes -> how often it is taken."""
    shapes = Counter[tuple[int, int, int, int]]()
    tokens, masked = job.batch_size * job.length, job.batch_size * job.masked_tokens

    def encoder(size: Size) -> None:
        width, embedding = size.hidden, size.embedding
        if width != embedding:
            shapes[1, tokens, embedding, width] += 1
        for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
            shapes[1, tokens, inputs, outputs] += size.layers
        rows, head = job.batch_size * size.heads, width // size.heads
        shapes[rows, job.length, head, job.length] += size.layers
        shapes[rows, job.length, job.length, head] += size.layers

    encoder(job.size)
    if job.what != "finetuning":
        generator = job.size.generator
        encoder(generator)
        shapes[1, masked, generator.hidden, generator.embedding] += 1
        shapes[1, masked, generator.embedding, generator.vocabulary] += 1
        shapes[1, tokens, job.size.hidden, job.size.hidden] += 1
    return shapes


def product_flops(job: Job) -> float:
    """FLOPs of a step, with its gradient unless it is an evaluation: 2 per multiply-add."""
    forward = sum(2.0 * batch * m * k * n * times for (batch, m, k, n), times in product_shapes(job).items())
    return forward * (1 if job.what == "evaluation" else 3)


def products(job: Job) -> Step:
    """The products alone, each as often as a step takes it, with both of its gradients."""
    import tensorflow as tf

    operands = []
    for (batch, m, k, n), times in product_shapes(job).items():
        x, w, y = (tf.cast(tf.random.normal([batch, *axes]), job.precision) for axes in ((m, k), (k, n), (m, n)))
        operands.append([tensor[0] if batch == 1 else tensor for tensor in (x, w, y)] + [times])

    def step() -> None:
        for x, w, y, times in operands:
            for _ in range(times):
                tf.matmul(x, w)
                if job.what != "evaluation":
                    tf.matmul(y, w, transpose_b=True)
                    tf.matmul(x, y, transpose_a=True)

    return step


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


def tf_models_encoder(job: Job, size: Size) -> Any:
    """An encoder's configuration, whose precision is a setting of the whole process."""
    import tf_keras
    from official.nlp.configs import encoders

    if job.precision == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    sizes = size.encoder
    bert = encoders.BertEncoderConfig(num_layers=sizes.pop("num_hidden_layers"), **sizes)
    return encoders.EncoderConfig(type="bert", bert=bert)


def tf_models_step(job: Job, model: Any, loss_of: Callable[[bool], Any]) -> Step:
    """`loss_of(training)` is the loss of the batch."""
    import tensorflow as tf
    from official.nlp import optimization

    optimizer = optimization.create_optimizer(5e-4, 1_000_000, 10_000)

    @tf.function
    def step() -> tf.Tensor:
        if job.what == "evaluation":
            return loss_of(False)
        with tf.GradientTape() as tape:
            loss = loss_of(True)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))  # which clips them
        return loss

    return lambda: float(step())


def tf_models_inputs(job: Job, ids: np.ndarray) -> dict[str, Any]:
    import tensorflow as tf

    fields = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}
    return {name: tf.constant(value, tf.int32) for name, value in fields.items()}


def tf_models(job: Job) -> Step:
    import tensorflow as tf
    import tf_keras
    from official.nlp.configs import electra
    from official.nlp.tasks import electra_task

    data = job.masked_batch
    count = data["places"].shape[1]
    model_config = electra.ElectraPretrainerConfig(
        num_masked_tokens=count,
        sequence_length=job.length,
        generator_encoder=tf_models_encoder(job, job.size.generator),
        discriminator_encoder=tf_models_encoder(job, job.size),
    )
    task = electra_task.ElectraPretrainTask(electra_task.ElectraPretrainConfig(model=model_config))
    model = task.build_model()
    names = ("lm_example_loss", "discriminator_loss", "total_loss")
    metrics = [tf_keras.metrics.Mean(name=name) for name in names]
    batch = tf_models_inputs(job, data["masked"]) | {
        "masked_lm_positions": tf.constant(data["places"], tf.int32),
        "masked_lm_ids": tf.constant(data["labels"], tf.int32),
        "masked_lm_weights": tf.ones([job.batch_size, count]),
    }
    return tf_models_step(
        job, model, lambda training: task.build_losses(batch, model(batch, training=training), metrics)
    )


def tf_models_classifier(job: Job) -> Step:
    import tensorflow as tf
    from official.nlp.configs import encoders
    from official.nlp.modeling import models

    model = models.BertClassifier(encoders.build_encoder(tf_models_encoder(job, job.size)), num_classes=2)
    inputs, labels = tf_models_inputs(job, job.token_ids), tf.constant(job.labels)

    def loss_of(training: bool) -> tf.Tensor:
        logits = tf.cast(model(inputs, training=training), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return tf_models_step(job, model, loss_of)


def hugging_face_step(job: Job, modules: list[Any], losses: Callable[[], Any], compiled: bool) -> Step:
    """`losses` is the loss of the batch, a function of the modules' parameters."""
    import torch

    parameters = list({id(p): p for module in modules for p in module.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01, fused=True)
    function = torch.compile(losses) if compiled else losses
    for module in modules:
        module.train(job.what != "evaluation")

    def step() -> float:
        if job.what == "evaluation":
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=job.precision == "bfloat16"):
                return float(function())
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=job.precision == "bfloat16"):
            loss = function()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def hugging_face(job: Job, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    configs = [transformers.ElectraConfig(**size.encoder) for size in (job.size.generator, job.size)]
    generator = transformers.ElectraForMaskedLM(configs[0])
    discriminator = transformers.ElectraForPreTraining(configs[1])
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    data = {name: torch.tensor(value) for name, value in job.masked_batch.items()}

    def losses() -> Any:
        states = generator.generator_predictions(generator.electra(data["masked"]).last_hidden_state)
        places = data["places"].unsqueeze(-1).expand(-1, -1, states.shape[-1])
        logits = generator.generator_lm_head(torch.gather(states, 1, places)).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"].flatten())
        with torch.no_grad():
            cumulative = torch.softmax(logits, -1).cumsum(-1)
            draws = torch.rand(logits.shape[:-1]).unsqueeze(-1) * cumulative[..., -1:]
            sampled = torch.searchsorted(cumulative, draws).squeeze(-1).clamp(max=job.size.vocabulary - 1)
            corrupted = data["ids"].scatter(1, data["places"], sampled)
            fake = (corrupted != data["ids"]).float()
        found = discriminator(corrupted).logits.float()
        return loss + 50.0 * torch.nn.functional.binary_cross_entropy_with_logits(found, fake)

    return hugging_face_step(job, [generator, discriminator], losses, compiled)


def hugging_face_classifier(job: Job, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**job.size.encoder))
    ids, labels = torch.tensor(job.token_ids), torch.tensor(job.labels)

    def losses() -> Any:
        return torch.nn.functional.cross_entropy(model(ids).logits.float(), labels)

    return hugging_face_step(job, [model], losses, compiled)


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Defines the flags of a job."""
    parser.add_argument("--what", default="pretraining", choices=("pretraining", "evaluation", "finetuning"))
    parser.add_argument("--model-size", default="small", choices=tuple(SIZES))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--max-seq-length", type=int, default=128)


def job_arguments(options: argparse.Namespace) -> list[str]:
    """The flags of a job as the arguments of `make_job` and of a contender's process."""
    return [options.model_size, str(options.batch_size), str(options.max_seq_length), options.what]


def make_job(contender: str, size: str, batch_size: str, length: str, what: str) -> Job:
    """Job of a contender's command line."""
    return Job(what, Size.read(size), int(batch_size), int(length), contender.rsplit("_", 1)[1])


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
