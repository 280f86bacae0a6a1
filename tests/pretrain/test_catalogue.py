"""The catalogue: an objective is what its own files say, and the forward pass computes what is asked for."""

import json
import math
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import pretrain.objectives
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.pretrain.flops import parameter_count, training_flops_per_example
from electra_tf2.pretrain.objectives.base import Objective
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util import catalogue
from electra_tf2.util.errors import UserError
from tests import golden_support as golden
from tests import training_support as support

SPEC = """
from electra_tf2.model.flops import token_unit
from electra_tf2.pretrain.objectives.spec import Needs, ObjectiveSpec, TeacherNeed

SPECS = (
    ObjectiveSpec(
        flag="",
        role="beside",
        objectives=("electra_tf2.pretrain.objectives.toy:Toy",),
        chosen=lambda c: c.model_name == "toy",
        problems=lambda c: iter(["toys need float32"] if c.precision != "float32" else []),
        parts=lambda c: [token_unit("toy", c.architecture, c.max_seq_length)],
        needs=lambda c: Needs((c.crop_length,), frozenset([(0, 1)]), TeacherNeed(c.init_checkpoint)),
    ),
)
"""
OBJECTIVE = '''
import tensorflow as tf

from electra_tf2.model.heads import CopyHead
from electra_tf2.pretrain.cropping import crop
from electra_tf2.pretrain.objectives.base import Objective


class Toy(Objective):
    """The teacher's states, weighted by attention, and something trained."""

    loss_name, loss_weight, initial_loss = "toy_loss", 0.5, 1.0

    def __init__(self, config, built=None):
        super().__init__("toy", config, built)
        self.head = CopyHead("toy_predictions", config.architecture, config.seed)

    def views(self, masked):
        return [crop(self.config, masked)]

    def token_weights(self, masked):
        return tf.cast(masked.input_mask, tf.float32)

    def call(self, forward, training):
        attended = tf.matmul(forward.encoded.attention[0, 1].probabilities, forward.teacher.encoded.sequence)
        crops = forward.views["toy_loss"][0].sequence[:, :1, :1]
        return self.output(forward, (self.head(forward.states) - attended[..., 0] - crops[..., 0]) ** 2, {})
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An objective in two files of its own, and a teacher's folder; nothing else knows of it."""
    folder = tmp_path / "objectives"
    folder.mkdir()
    (folder / "toy_spec.py").write_text(textwrap.dedent(SPEC))
    (folder / "toy.py").write_text(textwrap.dedent(OBJECTIVE))
    monkeypatch.setattr(pretrain.objectives, "__path__", [*pretrain.objectives.__path__, str(folder)])
    catalogue.module_names.cache_clear()
    catalogue.declared.cache_clear()
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, electra_objective=False))
    teacher = tmp_path / "teacher"
    tf.train.Checkpoint(model=PretrainingModel(config)).save(str(teacher / "model.ckpt"))
    (teacher / "config.json").write_text(config.to_json())
    yield support.hparams(tmp_path, model_name="toy", init_checkpoint=str(teacher))
    monkeypatch.undo()
    catalogue.module_names.cache_clear()
    catalogue.declared.cache_clear()


def batch_of(rows=8):
    ids = tf.constant(np.random.RandomState(0).randint(20, 600, [rows, support.LENGTH]), tf.int32)
    return {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}


def test_an_objective_in_its_own_files_is_trained_counted_and_checked(toy):
    config = PretrainingConfig.from_dict(toy)
    plain = PretrainingConfig.from_dict(toy | {"model_name": "plain"})
    task = PretrainingTask(config, tf.distribute.get_strategy())
    before = task.model.objectives[-1].head.dense.kernel.numpy()
    result = task.train_step(batch_of(), tf.constant(0, tf.int64))
    task.train_step(batch_of(), tf.constant(1, tf.int64))  # the first step of the warm-up has rate 0
    assert float(result["losses"]["toy_loss"]) > 0
    assert task.shown == ["loss", "masked_lm_loss", "disc_loss", "disc_recall", "toy_loss"]  # beside the progress
    assert (task.model.objectives[-1].head.dense.kernel.numpy() != before).any()
    totals = task.eval_step(batch_of(), tf.constant(0, tf.int64))
    assert {"toy_loss", "loss", "disc_loss"} <= task.summarise(totals).keys()
    built = sum(math.prod(variable.shape) for variable in task.model.trainable_variables)
    assert parameter_count(config) == built
    # Its head, and the forward passes over crops (backward, too) and of the teacher.
    assert training_flops_per_example(config) > training_flops_per_example(plain)
    with pytest.raises(UserError, match="toys need float32"):
        PretrainingConfig.from_dict(toy | {"precision": "bfloat16"})
    with pytest.raises(UserError, match="stands beside another"):
        PretrainingConfig.from_dict(toy | {"electra_objective": False})
    with pytest.raises(UserError, match=r"reads head 1 of layer 0 \(from 0\); there are 1 layers of 1 heads"):
        PretrainingConfig.from_dict(toy | {"model_hparam_overrides": {"num_hidden_layers": 1, "hidden_size": 64}})


def test_a_teacher_is_neither_trained_nor_saved(toy, tmp_path):
    config = PretrainingConfig.from_dict(toy)
    model = PretrainingModel(config)
    forward = model.forward(model.prepare(batch_of(), tf.constant([0, 1]))[0])
    assert model.encoder and model._teacher and forward.teacher and forward.corrupted
    student = model.encoder(**batch_of()).sequence
    assert np.abs(forward.teacher.encoded.sequence - student).max() == 0  # its seed was the same one
    model.encoder.embeddings.word_embeddings.assign_add(tf.ones([600, 16]))
    again = model.forward(model.prepare(batch_of(), tf.constant([0, 1]))[0])
    assert again.teacher is not None
    np.testing.assert_array_equal(again.teacher.encoded.sequence, forward.teacher.encoded.sequence)
    with tf.GradientTape() as tape:
        output = model._teacher(forward.masked, forward.corrupted)
        loss = tf.reduce_sum(output.encoded.sequence)
    teachers = model._teacher._network.trainable_variables
    assert teachers and all(gradient is None for gradient in tape.gradient(loss, teachers))
    assert not {id(variable) for variable in teachers} & {id(variable) for variable in model.variables}
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "run" / "model.ckpt"))
    saved = sum(math.prod(shape) for name, shape in tf.train.list_variables(path) if name.startswith("model/"))
    assert saved == sum(math.prod(variable.shape) for variable in model.trainable_variables)


def test_a_teacher_of_another_vocabulary_or_without_a_model_is_refused(toy, tmp_path):
    teacher = tmp_path / "teacher" / "config.json"
    text = json.loads(teacher.read_text())
    teacher.write_text(json.dumps(text | {"vocab_size": 700}))
    with pytest.raises(UserError, match="has a vocabulary of 700, this run one of 600"):
        PretrainingModel(PretrainingConfig.from_dict(toy))
    tokens = load_vocab(text["vocab_file"])
    (tmp_path / "teacher" / "vocab.txt").write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2]]))
    teacher.write_text(json.dumps(text))
    with pytest.raises(UserError, match=r"another vocabulary, .*teacher/vocab.txt, than this run, .*: token 598 is"):
        PretrainingModel(PretrainingConfig.from_dict(toy))
    (tmp_path / "teacher" / "vocab.txt").unlink()
    teacher.write_text(json.dumps(text | {"do_lower_case": False}))
    with pytest.raises(UserError, match="do_lower_case False"):
        PretrainingModel(PretrainingConfig.from_dict(toy))
    teacher.write_text(json.dumps(text | {"vocab_file": "nowhere.txt"}))  # its size is all that is known
    PretrainingModel(PretrainingConfig.from_dict(toy))
    with pytest.raises(UserError, match="holds no configuration of a model"):
        PretrainingModel(PretrainingConfig.from_dict(toy | {"init_checkpoint": str(tmp_path)}))


def test_the_forward_pass_computes_what_is_asked_for():
    forwards = {}
    for name, overrides in (("electra", {}), ("contrast", {"sequence_contrast_objective": True})):
        model = PretrainingModel(golden.config(**overrides))
        forwards[name] = model.forward(golden.masked_batch(model, golden.load_arrays("batch")))
    assert not forwards["electra"].views and len(forwards["contrast"].views["scl_loss"]) == 1
    for forward in forwards.values():
        assert forward.encoded and forward.generator.encoded and forward.teacher is None
        assert not forward.encoded.attention
        assert len(forward.encoded.layers) == len(forward.generator.encoded.layers) == 2


def test_every_entry_names_a_flag_and_classes():
    names = set(PretrainingConfig.__dataclass_fields__)
    specs = catalogue.declared("electra_tf2.pretrain.objectives", "_spec", "SPECS")
    assert len(specs) >= 9
    for spec in specs:
        assert not spec.flag or spec.flag in names
        for path in spec.objectives:
            kind = catalogue.load(path)
            assert issubclass(kind, Objective) and kind.loss_name and kind.of_generator == (spec.role == "generator")
