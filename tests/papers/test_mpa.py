"""MPA's penalty of attention: against plain loops, its gradient, its seams."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model import kernels
from electra_tf2.papers.counts import write_table
from electra_tf2.papers.mpa.model import AttentionRegulariser, attention_maps
from electra_tf2.papers.mpa.observed_encoder import AttentionMap, ObservedOutput
from electra_tf2.papers.mpa.tables import KIND, NOBODY, CooccurrenceTable
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.pretrain.pretraining_task import make_task
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import training as support
from tests.support.papers.mpa import dense
from tests.support.programs import run_program

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4}


def random_table(seed=0, neighbours=8):
    """Every token has neighbours among the first 60, so that contexts hold many of them, and is its own, as no real
    table has it: what stands at the drawn position itself must not count."""
    random = np.random.RandomState(seed)
    near = np.stack([random.permutation(np.arange(20, 60))[:neighbours] for _ in range(600)]).astype(np.int32)
    near[near == np.arange(600)[:, np.newaxis]] = NOBODY
    near[:, 0] = np.arange(600)
    near[:, -2:] = NOBODY
    return CooccurrenceTable(near, np.where(near == NOBODY, 0, random.rand(600, neighbours)).astype(np.float16))


@pytest.fixture(autouse=True)
def plain():
    """Blocks as ordinary operations: XLA would compile each of them for every test."""
    with kernels.off():
        yield


def write_files(folder):
    """Writes the files that runs of the paper read."""
    write_table(folder / "cooccurrence.npz", KIND, VOCAB, random_table()._asdict())


@pytest.fixture(scope="module")
def table_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mpa")
    write_files(folder)
    return str(folder / "cooccurrence.npz")


def config_of(table_file, folder=".", **overrides):
    given = {
        "paper": "mpa",
        "cooccurrence_file": table_file,
        "sizes": SIZES,
        "mask_prob": 0.3,
        "num_warmup_steps": 0,
    }
    return PretrainingConfig.from_dict(support.hparams(folder, **given | overrides))


def batch_of(seed=0):
    return support.batch_of(seed=seed, last=60, padding=3)


def forward_of(config, seed=1):
    model = make_model(config)
    masked, _ = model.prepare(batch_of(), tf.constant([seed, 2]))
    return model, model.forward(masked)


def with_scores(forward, config, scores):
    """The forward pass, with these scores [B, L, L] as the attention of (layer, head)."""
    forbidden = -1e4 * tf.cast(forward.masked.input_mask == 0, tf.float32)[:, tf.newaxis]
    maps = {place: AttentionMap(value, tf.nn.softmax(value + forbidden)) for place, value in scores.items()}
    return dataclasses.replace(forward, encoded=ObservedOutput(forward.states, forward.states, (), maps))


def plain_loss(forward, scores, table):
    """(sum of the penalty over wrong tokens, wrong draws, mass of attention on harmful tokens), by loops in float64."""
    whole = dense(table)
    masked, corrupted = forward.masked, forward.corrupted
    ids, real = corrupted.input_ids.numpy(), masked.input_mask.numpy()
    total = wrong = mass = 0.0
    for row, positions in enumerate(masked.positions.numpy()):
        for draw, place in enumerate(positions):
            if not masked.masked_lm_weights[row, draw] or ids[row, place] == masked.input_ids.numpy()[row, place]:
                continue
            wrong += 1
            for value in scores.values():
                a = value.numpy()[row, place].astype(np.float64)
                shares = np.exp(a) * real[row] / (np.exp(a) * real[row]).sum()
                for j in range(support.LENGTH):
                    if j != place and real[row, j]:
                        s = whole[ids[row, place], ids[row, j]]
                        mass += shares[j] * s / len(scores)
                        total += (a[j] * s) ** 2 / len(scores)
    return total, wrong, mass


@pytest.mark.parametrize(("heads", "observed"), [(4, [0]), (8, [0, 1]), (2, [0])])
def test_by_default_a_quarter_of_the_last_layers_heads_is_regularised(table_file, heads, observed):
    sizes = SIZES | {"num_attention_heads": heads}
    config = config_of(table_file, sizes=sizes)
    last = config.architecture.num_hidden_layers - 1
    assert config.observed_heads == [(last, head) for head in observed]


def test_the_penalty_equals_plain_loops(table_file):
    config = config_of(table_file, mpa_layers=[0, -1], mpa_heads=[1, 3])
    model = make_model(config)
    masked, _ = model.prepare(batch_of(), tf.constant([1, 2]))
    sampled = np.random.RandomState(2).randint(20, 60, masked.positions.shape)
    # A young generator has nothing right.
    sampled = np.where(np.arange(sampled.shape[1]) % 3, sampled, masked.masked_lm_ids)
    forward = model.forward(masked, sampled_ids=tf.constant(sampled, tf.int32))
    objective = model.objectives[-1]
    assert isinstance(objective, AttentionRegulariser) and forward.encoded is not None
    assert sorted(attention_maps(forward)) == [(0, 1), (0, 3), (1, 1), (1, 3)]
    random = np.random.RandomState(1)
    scores = {
        place: tf.constant(random.standard_normal([8, 16, 16]), tf.float32) for place in sorted(attention_maps(forward))
    }
    output = objective(with_scores(forward, config, scores), True)
    total, wrong, mass = plain_loss(forward, scores, random_table())
    assert 10 < wrong < float(tf.reduce_sum(forward.masked.masked_lm_weights)) - 5 and total > 0
    assert float(output.numerator) == pytest.approx(total, rel=1e-3)
    numerator, denominator = output.metrics["attention_on_harm"]
    assert float(numerator) == pytest.approx(mass, rel=1e-3) and float(denominator) == wrong
    assert [float(x) for x in output.metrics["mispredictions"]] == [wrong, 8]
    assert float(output.metrics["mpa_loss"][1]) == float(tf.reduce_sum(forward.masked.masked_lm_weights))


@pytest.mark.parametrize("stop_gradient", [True, False])
def test_the_gradient_of_the_scores_is_the_derived_one(table_file, stop_gradient):
    """2 a S towards a constant target, 2 a S^2 otherwise; the latter is what finite differences give."""
    config = config_of(table_file, mpa_stop_gradient=stop_gradient, mpa_heads=[0])
    model, forward = forward_of(config)
    objective = model.objectives[-1]
    a = tf.Variable(np.random.RandomState(1).standard_normal([8, 16, 16]), dtype=tf.float32)

    def loss():
        return objective(with_scores(forward, config, {(1, 0): a + 0.0}), True).numerator

    with tf.GradientTape() as tape:
        value = loss()
    gradient = tape.gradient(value, a).numpy()
    predicted = objective.predicted(forward)
    wrong = (predicted != forward.masked.masked_lm_ids).numpy() & (forward.masked.masked_lm_weights.numpy() > 0)
    harm = objective.cooccurrence(forward, predicted).numpy() * wrong[..., np.newaxis]
    expected = np.zeros_like(gradient)
    for row, positions in enumerate(forward.masked.positions.numpy()):
        for draw, place in enumerate(positions):
            s = harm[row, draw]
            expected[row, place] += 2 * a.numpy()[row, place] * (s if stop_gradient else s**2)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    assert np.abs(gradient).max() > 0.1
    if not stop_gradient:
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        moved = a.numpy()
        moved[place] += 0.01
        a.assign(moved)
        assert float(loss() - value) / 0.01 == pytest.approx(gradient[place], rel=0.05)


def test_only_the_selected_heads_of_a_layer_feel_it(table_file):
    config = config_of(table_file, mpa_layers=[1], mpa_heads=[2])
    model, _ = forward_of(config)
    masked, _ = model.prepare(batch_of(), tf.constant([1, 2]))
    with tf.GradientTape() as tape:
        loss = model.objectives[-1](model.forward(masked), True).numerator
    attention = model.encoder.transformer_layers[1].attention
    by_head = tape.gradient(loss, attention.qkv.kernel).numpy().reshape(32, 3, 4, 8)
    assert np.abs(by_head[:, :2, 2]).max() > 0  # query and key
    assert (by_head[:, 2] == 0).all() and (by_head[:, :, [0, 1, 3]] == 0).all()


def trained(config, steps=2):
    task = make_task(config, tf.distribute.get_strategy())
    results = [task.train_step(batch_of(seed=number), tf.constant(number, tf.int64)) for number in range(steps)]
    return {variable.name: variable.numpy() for variable in task.model.trainable_variables}, results


def test_without_weight_or_without_harm_the_run_is_electras_bit_for_bit(table_file, tmp_path):
    empty = str(tmp_path / "empty.npz")
    no_neighbours = CooccurrenceTable(np.full([600, 1], NOBODY, np.int32), np.zeros([600, 1], np.float16))
    write_table(empty, KIND, VOCAB, no_neighbours._asdict())
    settings = {"sizes": SIZES, "mask_prob": 0.3, "num_warmup_steps": 0}
    electra, _ = trained(PretrainingConfig.from_dict(support.hparams(tmp_path, **settings)))
    weightless, results = trained(config_of(table_file, mpa_gamma=0.0))
    harmless, without = trained(config_of(empty, mpa_gamma=1.0, mpa_warmup_steps=0))
    for name, value in electra.items():
        np.testing.assert_array_equal(value, weightless[name])
        np.testing.assert_array_equal(value, harmless[name])
    assert float(results[-1]["losses"]["mpa_loss"]) > 0
    assert float(without[-1]["losses"]["mpa_loss"]) == 0
    numerator, denominator = results[-1]["metrics"]["attention_on_harm"]
    assert 0 < float(numerator) < float(denominator)


def test_the_weight_is_warmed_up(table_file):
    config = config_of(table_file, mpa_gamma=0.5, mpa_warmup_steps=10)
    model = make_model(config)
    steps = [tf.constant(step, tf.int64) for step in (0, 5, 10, 99)] + [None]
    assert [float(model.loss_weights(step)["mpa_loss"]) for step in steps] == [0, 0.25, 0.5, 0.5, 0.5]


def test_bert_is_penalised_where_its_own_best_guess_is_wrong(table_file):
    config = config_of(table_file, electra_objective=False, mpa_heads=[1], mpa_warmup_steps=0)
    model, forward = forward_of(config)
    assert forward.corrupted is None and sorted(attention_maps(forward)) == [(1, 1)]
    guesses = model.objectives[-1].predicted(forward).numpy()
    np.testing.assert_array_equal(guesses, forward.generator.softmax.logits.numpy().argmax(-1))
    _, results = trained(config)
    assert results[0]["losses"].keys() == {"loss", "masked_lm_loss", "mpa_loss"}
    assert all(float(result["losses"]["mpa_loss"]) > 0 for result in results)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mpa_layers": [2]}, r"mpa_layers must name some of 2 layers, from 0 or from -1, got \[2\]"),
        ({"mpa_layers": []}, "mpa_layers must name some of 2 layers"),
        ({"mpa_heads": [4]}, r"mpa_heads must name some of 4 heads, from 0, got \[4\]"),
    ],
)
def test_what_cannot_be_penalised_is_refused(table_file, wrong, message):
    with pytest.raises(UserError, match=message):
        config_of(table_file, **wrong)


def test_overwrite_spares_its_table(table_file, tmp_path):
    model = tmp_path / "model"
    hparams = support.hparams(tmp_path, paper="mpa", model_dir=str(model), cooccurrence_file=str(model / "table.npz"))
    support.write_records(tmp_path / "pretrain_tfrecords")
    model.mkdir()
    (model / "config.json").write_text(PretrainingConfig.from_dict(hparams).to_json())
    (model / "model.ckpt-4.index").write_text("")
    done = run_program("run_pretraining.py", "--hparams", json.dumps(hparams), "--overwrite")
    assert done.returncode == 2 and "--overwrite would rename cooccurrence_file" in done.stderr
    assert sorted(path.name for path in model.iterdir()) == ["config.json", "model.ckpt-4.index"]
