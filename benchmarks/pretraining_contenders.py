"""One contender of benchmarks/pretraining_step.py: builds its model, then runs as many steps as a line of stdin says.

A step of training, or of evaluation: the forward passes without dropout, sampling, losses and metrics.

Ours; tf-models-official's ElectraPretrainer with its task's losses; Hugging Face's ElectraForMaskedLM and
ElectraForPreTraining on PyTorch with tied embeddings, the same masking rate, sampling and losses.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from synthetic_records import VOCABULARY, write_vocabulary

from util.environment import before_tensorflow

_MASK = 103
# hidden, layers, heads, embedding; generator's share of the width (ELECTRA, Table 6; generator heads as the original)
_SIZES = {"small": (256, 12, 4, 128, 4), "base": (768, 12, 12, 768, 3), "large": (1024, 24, 16, 1024, 4)}

Step = Callable[[], object]


def token_ids(batch_size: int, length: int) -> np.ndarray:
    ids = np.random.RandomState(0).randint(1000, 30000, [batch_size, length])
    ids[:, 0], ids[:, -1] = 101, 102
    return ids


def ours(size: str, batch_size: int, length: int, precision: str, evaluate: bool, jit_compile: bool) -> Step:
    import tensorflow as tf

    from configure_pretraining import PretrainingConfig
    from pretrain.task import PretrainingTask
    from util.distribution import make_strategy

    vocab_file = Path(tempfile.mkdtemp()) / "vocab.txt"
    write_vocabulary(vocab_file)
    config = PretrainingConfig.from_dict(
        {
            "model_size": size,
            "generator_hidden_size": 1 / _SIZES[size][4],
            "train_batch_size": batch_size,
            "max_seq_length": length,
            "precision": precision,
            "vocab_file": str(vocab_file),
        }
    )
    strategy = make_strategy(config)
    with strategy.scope():
        task = PretrainingTask(config, strategy, jit_compile)

    def in_graph(step: Callable[..., Any]) -> Callable[..., Any]:
        return tf.function(lambda batch, number: strategy.run(step, args=(batch, number)), autograph=False)

    ids = tf.constant(token_ids(batch_size, length), tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    if evaluate:
        eval_step = in_graph(task.eval_step)
        return lambda: float(eval_step(batch, tf.constant(0, tf.int64))["metrics"]["masked_lm_loss"][0])
    step = in_graph(task.train_step)
    return lambda: float(step(batch, task.optimizer.step)["losses"]["loss"])


def masked_batch(batch_size: int, length: int) -> dict[str, np.ndarray]:
    """Inputs masked beforehand, as the peers' pipelines do it."""
    ids = token_ids(batch_size, length)
    count = int((0.15 + 0.005) * length)
    places = np.stack([1 + np.random.RandomState(i).permutation(length - 2)[:count] for i in range(batch_size)])
    masked = ids.copy()
    np.put_along_axis(masked, places, _MASK, 1)
    return {"ids": ids, "masked": masked, "places": places, "labels": np.take_along_axis(ids, places, 1)}


def tf_models(size: str, batch_size: int, length: int, precision: str, evaluate: bool) -> Step:
    import tensorflow as tf
    import tf_keras
    from official.nlp import optimization
    from official.nlp.configs import electra, encoders
    from official.nlp.tasks import electra_task

    if precision == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    hidden, layers, heads, embedding, share = _SIZES[size]

    def encoder(share: int) -> Any:
        bert = encoders.BertEncoderConfig(
            vocab_size=VOCABULARY,
            hidden_size=hidden // share,
            num_layers=layers,
            num_attention_heads=max(1, heads // share),
            intermediate_size=4 * hidden // share,
            embedding_size=embedding,
        )
        return encoders.EncoderConfig(type="bert", bert=bert)

    data = masked_batch(batch_size, length)
    count = data["places"].shape[1]
    model_config = electra.ElectraPretrainerConfig(
        num_masked_tokens=count,
        sequence_length=length,
        generator_encoder=encoder(share),
        discriminator_encoder=encoder(1),
    )
    task = electra_task.ElectraPretrainTask(electra_task.ElectraPretrainConfig(model=model_config))
    model = task.build_model()
    names = ("lm_example_loss", "discriminator_loss", "total_loss")
    metrics = [tf_keras.metrics.Mean(name=name) for name in names]
    optimizer = optimization.create_optimizer(5e-4, 1_000_000, 10_000)
    inputs = {
        "input_word_ids": data["masked"],
        "input_mask": np.ones([batch_size, length]),
        "input_type_ids": np.zeros([batch_size, length]),
        "masked_lm_positions": data["places"],
        "masked_lm_ids": data["labels"],
    }
    batch = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
    batch["masked_lm_weights"] = tf.ones([batch_size, count])

    @tf.function
    def step() -> tf.Tensor:
        if evaluate:
            return task.build_losses(batch, model(batch, training=False), metrics)
        with tf.GradientTape() as tape:
            loss = task.build_losses(batch, model(batch, training=True), metrics)
        variables = model.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return lambda: float(step())


def hugging_face(size: str, batch_size: int, length: int, precision: str, evaluate: bool, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    hidden, layers, heads, embedding, share = _SIZES[size]

    def config(share: int) -> Any:
        return transformers.ElectraConfig(
            vocab_size=VOCABULARY,
            embedding_size=embedding,
            hidden_size=hidden // share,
            num_hidden_layers=layers,
            num_attention_heads=max(1, heads // share),
            intermediate_size=4 * hidden // share,
        )

    generator = transformers.ElectraForMaskedLM(config(share))
    discriminator = transformers.ElectraForPreTraining(config(1))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    parameters = list({id(p): p for module in (generator, discriminator) for p in module.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01)
    data = {name: torch.tensor(value) for name, value in masked_batch(batch_size, length).items()}

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

    function = torch.compile(losses) if compiled else losses
    for module in (generator, discriminator):
        module.train(not evaluate)

    def step() -> float:
        if evaluate:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                return float(function())
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = function()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def main() -> None:
    name, size, batch_size, length = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    evaluate = sys.argv[5] == "evaluation"
    before_tensorflow(log_level=3)
    program, precision = name.rsplit("_", 1)
    makers: dict[str, Callable[[], Step]] = {
        "ours": lambda: ours(size, batch_size, length, precision, evaluate, jit_compile=False),
        "ours_xla": lambda: ours(size, batch_size, length, precision, evaluate, jit_compile=True),
        "tf_models": lambda: tf_models(size, batch_size, length, precision, evaluate),
        "hugging_face": lambda: hugging_face(size, batch_size, length, precision, evaluate, compiled=False),
        "hugging_face_compiled": lambda: hugging_face(size, batch_size, length, precision, evaluate, compiled=True),
    }
    if program not in makers or precision not in ("float32", "bfloat16"):
        sys.exit(f"unknown contender {name}: one of {', '.join(makers)} and _float32 or _bfloat16")
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
