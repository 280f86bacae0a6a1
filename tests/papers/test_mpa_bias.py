"""MPA on a corpus with a planted bias: "bedroom" mostly stands before "bed", and a cue tells when it does not.

The generator is frozen and always says "bed", also where the cue says otherwise. The main network begins with heads
that look at the planted word, and should look less at it there than without the penalty; whether it finds these tokens
out is measured beside it.
"""

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.tables import write_table
from electra_tf2.model import kernels
from electra_tf2.model.generator import MaskedLanguageModel
from electra_tf2.papers.mpa.model import attention_of
from electra_tf2.papers.mpa.tables import KIND, NOBODY, CooccurrenceTable
from electra_tf2.pretrain import masking
from electra_tf2.pretrain.objectives.electra import Detection
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.task import make_task
from tests.support import golden
from tests.support import training as support

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
PLANTED, USUAL, UNUSUAL, CUE, OTHER = 30, 31, 32, 33, 34  # bedroom; bed, table; the table's cue; anything else
PLANT, PLACE, CUES = 3, 8, 12  # where the planted word, bed or table, and the cue stand
STEPS = 15


def sentences(planted: np.ndarray, usual: np.ndarray) -> dict[str, tf.Tensor]:
    ids = np.tile(np.arange(40, 40 + support.LENGTH, dtype=np.int32), [len(planted), 1])  # what is the same everywhere
    ids[:, PLANT] = np.where(planted, PLANTED, OTHER)
    ids[:, PLACE] = np.where(usual, USUAL, UNUSUAL)
    ids[:, CUES] = np.where(usual, OTHER, CUE)
    ids[:, 0], ids[:, -1] = 2, 3
    ids = tf.constant(ids)
    return {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}


def biased_batch(seed: int, rows: int = 32) -> dict[str, tf.Tensor]:
    """The planted word stands before "bed" four times of five; another word, one time of five."""
    random = np.random.RandomState(seed)
    planted = random.rand(rows) < 0.7
    return sentences(planted, np.where(planted, random.rand(rows) < 0.8, random.rand(rows) < 0.2))


@pytest.fixture(scope="module")
def table_file(tmp_path_factory) -> str:
    near, scores = np.full([600, 1], NOBODY, np.int32), np.zeros([600, 1], np.float16)
    near[[USUAL, UNUSUAL]], scores[[USUAL, UNUSUAL]] = PLANTED, 1.0
    path = str(tmp_path_factory.mktemp("mpa") / "cooccurrence.npz")
    write_table(path, KIND, VOCAB, CooccurrenceTable(near, scores)._asdict())
    return path


def look_at_planted_word(model: PretrainingModel) -> None:
    """Lets all heads of the first layer attend to the planted word, with scores of about 5 before the softmax."""
    assert model.encoder is not None
    batch = sentences(np.ones(1, bool), np.ones(1, bool))
    planted = model.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"]).embeddings[0, PLANT]
    attention = model.encoder.transformer_layers[0].attention
    query, key, value = tf.split(attention.qkv.kernel, 3, axis=-1)
    key += planted[:, tf.newaxis] / tf.reduce_sum(tf.square(planted))  # the planted word's keys are 1 larger
    attention.qkv.kernel.assign(tf.concat([query, key, value], -1))
    bias = attention.qkv.bias.numpy()
    bias[: key.shape[-1]] = 5.0 / attention.head_size**0.5
    attention.qkv.bias.assign(bias)


def trained(table_file: str, **changes: object) -> PretrainingModel:
    settings = support.hparams(
        ".",
        sizes={"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_dropout_prob": 0.0,
               "attention_probs_dropout_prob": 0.0, "initializer_range": 0.15},
        cooccurrence_file=table_file, paper="mpa", mask_prob=0.3, mask_rates=[1.0, 0.0, 0.0],
        num_train_steps=1000, learning_rate=1e-3, num_warmup_steps=5, lr_schedule="separate", mpa_layers=[0, 1],
        mpa_heads=[0, 1, 2, 3], embedding_size=32, embedding_sharing="nes", freeze_generator=True, **changes,
    )  # fmt: skip
    task = make_task(PretrainingConfig.from_dict(settings), tf.distribute.get_strategy())
    generator = task.model.generator
    assert isinstance(generator, MaskedLanguageModel)
    generator.head.output_bias.assign(tf.one_hot(USUAL, 600) * 30.0)
    look_at_planted_word(task.model)
    step = tf.function(task.train_step, autograph=False)
    for number in range(STEPS):
        step(biased_batch(number), tf.constant(number, tf.int64))
    return task.model


def at_the_place(model: PretrainingModel, rows: int = 128) -> dict[str, float]:
    """Where "bed" was put after the planted word and is wrong, and where it is right: the attention of that place to
    the planted word, and the share of sequences in which the main network tells which of both it is."""
    found: dict[str, float] = {}
    for name, usual in (("wrong", False), ("right", True)):
        batch = sentences(np.ones(rows, bool), np.full(rows, usual))
        count = model.config.max_predictions_per_seq
        first = np.eye(1, count)[0][np.newaxis].repeat(rows, 0)
        noise = masking.draw_noise(model.config, tf.constant([0, 0]), rows, 0, rows)
        positions, weights = tf.constant(first * PLACE, tf.int32), tf.constant(first, tf.float32)
        masked = masking.masked_at(model.config, batch, positions, weights, noise, model.special)
        forward = model.forward(masked, sampled_ids=tf.fill([rows, count], USUAL))
        detection = golden.objective_of(model, Detection)
        called_fake = detection.logits(forward).numpy()[:, PLACE] > 0
        maps = [kept.probabilities.numpy()[:, PLACE, PLANT] for kept in attention_of(forward).values()]
        found |= {f"{name}/attention": float(np.mean(maps)), f"{name}/detected": float(np.mean(called_fake != usual))}
    return found


def test_attention_on_a_planted_word_falls(table_file):
    found = {}
    with kernels.off():
        for name, changes in (
            ("none", {"mpa_gamma": 0.0}),
            ("scaled_logits", {"mpa_gamma": 10.0}),
            ("prob_mass", {"mpa_gamma": 50.0, "mpa_target": "prob_mass"}),
        ):
            found[name] = at_the_place(trained(table_file, **changes))
    # What is detected after so few steps is chance.
    assert found["scaled_logits"]["wrong/attention"] < 0.6 * found["none"]["wrong/attention"]
    assert found["prob_mass"]["wrong/attention"] < 0.3 * found["none"]["wrong/attention"]
