"""One contender of benchmarks/step.py: builds its model, then runs as many steps as a line of stdin says.

Pre-training: ours; tf-models-official's ElectraPretrainer with its task's losses; Hugging Face's ElectraForMaskedLM and
ElectraForPreTraining on PyTorch with tied embeddings, the same masking rate, sampling and losses. Evaluation: their
forward passes without dropout, with the metrics that each computes beside its losses. Fine-tuning: our task CoLA;
tf-models' BertClassifier; Hugging Face's ElectraForSequenceClassification.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from synthetic_records import VOCABULARY, write_vocabulary

from util.environment import before_tensorflow

_MASK = 103
# hidden, layers, heads, embedding; generator's share of the width (ELECTRA, Table 6; generator heads as the original)
_SIZES = {"small": (256, 12, 4, 128, 4), "base": (768, 12, 12, 768, 3), "large": (1024, 24, 16, 1024, 4)}

Step = Callable[[], object]


class Job(NamedTuple):
    """What the contenders have in common."""

    what: str  # "pretraining", "evaluation" or "finetuning"
    size: str
    batch_size: int
    length: int
    precision: str

    @property
    def token_ids(self) -> np.ndarray:
        ids = np.random.RandomState(0).randint(1000, 30000, [self.batch_size, self.length])
        ids[:, 0], ids[:, -1] = 101, 102
        return ids

    @property
    def labels(self) -> np.ndarray:
        """int [B], of two classes."""
        return np.random.RandomState(1).randint(0, 2, [self.batch_size])

    @property
    def masked_batch(self) -> dict[str, np.ndarray]:
        """Inputs masked beforehand, as the peers' pipelines do it."""
        ids = self.token_ids
        count = int((0.15 + 0.005) * self.length)
        rows = range(self.batch_size)
        places = np.stack([1 + np.random.RandomState(i).permutation(self.length - 2)[:count] for i in rows])
        masked = ids.copy()
        np.put_along_axis(masked, places, _MASK, 1)
        return {"ids": ids, "masked": masked, "places": places, "labels": np.take_along_axis(ids, places, 1)}


def vocabulary() -> str:
    path = Path(tempfile.mkdtemp()) / "vocab.txt"
    write_vocabulary(path)
    return str(path)


def ours(job: Job, jit_compile: bool) -> Step:
    import tensorflow as tf

    from configure_pretraining import PretrainingConfig
    from pretrain.task import PretrainingTask
    from training.distribution import make_strategy

    config = PretrainingConfig.from_dict(
        {
            "model_size": job.size,
            "generator_hidden_size": 1 / _SIZES[job.size][4],
            "train_batch_size": job.batch_size,
            "max_seq_length": job.length,
            "precision": job.precision,
            "strategy": "one_device",
            "vocab_file": vocabulary(),
        }
    )
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

    from configure_finetuning import FinetuningConfig
    from corpus.tokenization import WordpieceTokenizer
    from finetune.batching import FeatureTable, TaskFeatures
    from finetune.task import Features, make_tasks
    from finetune.training_task import FinetuningTask
    from training.distribution import make_strategy

    config = FinetuningConfig.from_dict(
        {
            "model_size": job.size,
            "task_names": ["cola"],
            "train_batch_size": job.batch_size,
            "max_seq_length": job.length,
            "precision": job.precision,
            "strategy": "one_device",
            "vocab_file": vocabulary(),
        }
    )
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


def tf_models_precision(job: Job) -> None:
    import tf_keras

    if job.precision == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")


def tf_models_encoder(job: Job, share: int) -> Any:
    """The configuration of an encoder of 1/share the width."""
    from official.nlp.configs import encoders

    hidden, layers, heads, embedding, _ = _SIZES[job.size]
    bert = encoders.BertEncoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden // share,
        num_layers=layers,
        num_attention_heads=max(1, heads // share),
        intermediate_size=4 * hidden // share,
        embedding_size=embedding,
    )
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
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
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

    tf_models_precision(job)
    data = job.masked_batch
    count = data["places"].shape[1]
    model_config = electra.ElectraPretrainerConfig(
        num_masked_tokens=count,
        sequence_length=job.length,
        generator_encoder=tf_models_encoder(job, _SIZES[job.size][4]),
        discriminator_encoder=tf_models_encoder(job, 1),
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

    tf_models_precision(job)
    model = models.BertClassifier(encoders.build_encoder(tf_models_encoder(job, 1)), num_classes=2)
    inputs, labels = tf_models_inputs(job, job.token_ids), tf.constant(job.labels)

    def loss_of(training: bool) -> tf.Tensor:
        logits = tf.cast(model(inputs, training=training), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return tf_models_step(job, model, loss_of)


def hugging_face_config(job: Job, share: int) -> Any:
    """Of an encoder of 1/share the width."""
    import transformers

    hidden, layers, heads, embedding, _ = _SIZES[job.size]
    return transformers.ElectraConfig(
        vocab_size=VOCABULARY,
        embedding_size=embedding,
        hidden_size=hidden // share,
        num_hidden_layers=layers,
        num_attention_heads=max(1, heads // share),
        intermediate_size=4 * hidden // share,
    )


def hugging_face_step(job: Job, modules: list[Any], losses: Callable[[], Any], compiled: bool) -> Step:
    """`losses` is the loss of the batch, a function of the modules' parameters."""
    import torch

    parameters = list({id(p): p for module in modules for p in module.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01)
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
    generator = transformers.ElectraForMaskedLM(hugging_face_config(job, _SIZES[job.size][4]))
    discriminator = transformers.ElectraForPreTraining(hugging_face_config(job, 1))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    data = {name: torch.tensor(value) for name, value in job.masked_batch.items()}

    def losses() -> Any:
        states = generator.generator_predictions(generator.electra(data["masked"]).last_hidden_state)
        places = data["places"].unsqueeze(-1).expand(-1, -1, states.shape[-1])
        logits = generator.generator_lm_head(torch.gather(states, 1, places)).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"].flatten())
        with torch.no_grad():
            noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
            sampled = (logits + noise).argmax(-1)
            corrupted = data["ids"].scatter(1, data["places"], sampled)
            fake = (corrupted != data["ids"]).float()
        found = discriminator(corrupted).logits.float()
        return loss + 50.0 * torch.nn.functional.binary_cross_entropy_with_logits(found, fake)

    return hugging_face_step(job, [generator, discriminator], losses, compiled)


def hugging_face_classifier(job: Job, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.ElectraForSequenceClassification(hugging_face_config(job, 1))
    ids, labels = torch.tensor(job.token_ids), torch.tensor(job.labels)

    def losses() -> Any:
        return torch.nn.functional.cross_entropy(model(ids).logits.float(), labels)

    return hugging_face_step(job, [model], losses, compiled)


def main() -> None:
    contender, size, batch_size, length, what = sys.argv[1:]
    before_tensorflow()
    program, precision = contender.rsplit("_", 1)
    job = Job(what, size, int(batch_size), int(length), precision)
    finetuning = what == "finetuning"
    ours_of, tf_models_of = (ours_classifier, tf_models_classifier) if finetuning else (ours, tf_models)
    hugging_face_of = hugging_face_classifier if finetuning else hugging_face
    makers: dict[str, Callable[[], Step]] = {
        "ours": lambda: ours_of(job, jit_compile=False),
        "ours_xla": lambda: ours_of(job, jit_compile=True),
        "tf_models": lambda: tf_models_of(job),
        "hugging_face": lambda: hugging_face_of(job, compiled=False),
        "hugging_face_compiled": lambda: hugging_face_of(job, compiled=True),
    }
    if program not in makers or precision not in ("float32", "bfloat16"):
        sys.exit(f"unknown contender {contender}: one of {', '.join(makers)} and _float32 or _bfloat16")
    start = time.perf_counter()
    step = makers[program]()
    for _ in range(3):
        step()
    print("ready", time.perf_counter() - start, flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        for _ in range(int(line)):
            step()
        print("seconds", time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
