"""The catalogue: an objective is what its own files say, and the forward pass computes what is asked for."""

import json
import math
import sys

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.pretrain.flops import parameter_count, training_flops_per_example
from electra_tf2.pretrain.objectives.bert import MaskedLM
from electra_tf2.pretrain.objectives.catalogue import OBJECTIVES, AnyObjective, _extended, own_objective
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import training as support

OBJECTIVE = '''
import dataclasses

import tensorflow as tf

from electra_tf2.model.flops import token_unit
from electra_tf2.model.heads import CopyHead
from electra_tf2.pretrain.objectives.coco_lm import CocoHparams, crop
from electra_tf2.pretrain.objectives.objective import Needs, Objective, TeacherNeed
from electra_tf2.util.hparams import hparam


@dataclasses.dataclass(frozen=True)
class ToyHparams(CocoHparams):
    toy: bool = hparam(False, "the teacher's states, weighted by attention")
    toy_teacher: str = hparam("", "folder of a model")


class Toy(Objective[ToyHparams]):
    """The teacher's states, weighted by attention, and something trained."""

    flag, loss_name, loss_weight, initial_loss = "toy", "toy_loss", 0.5, 1.0

    @classmethod
    def problems(cls, config):
        if config.precision != "float32":
            yield "toys need float32"

    @classmethod
    def parts(cls, config):
        return [token_unit("toy", config.architecture, config.max_seq_length)]

    @classmethod
    def needs(cls, config):
        return Needs((config.crop_length,), frozenset([(0, 1)]), TeacherNeed(config.toy_teacher))

    def __init__(self, config, networks):
        super().__init__(config, networks)
        self.head = CopyHead("toy_predictions", config.architecture, config.seed)

    def views(self, masked):
        return [crop(self.config, masked)]

    def token_weights(self, masked):
        return tf.cast(masked.input_mask, tf.float32)

    def __call__(self, forward, training):
        attended = tf.matmul(forward.encoded.attention[0, 1].probabilities, forward.teacher.encoded.sequence)
        crops = forward.views["toy_loss"][0].sequence[:, :1, :1]
        return self.output(forward, (self.head(forward.states) - attended[..., 0] - crops[..., 0]) ** 2, {})
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """An objective that needs everything, in a file of its own outside of the repository, and a teacher's folder."""
    (tmp_path / "toys.py").write_text(OBJECTIVE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toys", raising=False)
    own_objective.cache_clear()
    _extended.clear()
    config = PretrainingConfig.from_dict(support.hparams(tmp_path, electra_objective=False))
    teacher = tmp_path / "teacher"
    tf.train.Checkpoint(model=PretrainingModel(config)).save(str(teacher / "model.ckpt"))
    (teacher / "config.json").write_text(config.to_json())
    yield support.hparams(tmp_path, objectives=["toys:Toy"], toy=True, toy_teacher=str(teacher))
    own_objective.cache_clear()
    _extended.clear()


def head_of(task):
    return vars(task.model.objectives[-1])["head"]


def batch_of(rows=8):
    ids = tf.constant(np.random.RandomState(0).randint(20, 600, [rows, support.LENGTH]), tf.int32)
    return {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}


def test_an_objective_in_its_own_files_is_trained_counted_and_checked(toy):
    config = PretrainingConfig.from_dict(toy)
    plain = PretrainingConfig.from_dict(toy | {"toy": False})
    task = PretrainingTask(config, tf.distribute.get_strategy())
    before = head_of(task).dense.kernel.numpy()
    result = task.train_step(batch_of(), tf.constant(0, tf.int64))
    task.train_step(batch_of(), tf.constant(1, tf.int64))  # the first step of the warm-up has rate 0
    assert float(result["losses"]["toy_loss"]) > 0
    shown = ["loss", "masked_lm_loss", "unigram_entropy", "disc_loss", "disc_auc", "disc_recall", "toy_loss"]
    assert task.shown == shown  # beside the progress and after an evaluation
    assert (head_of(task).dense.kernel.numpy() != before).any()
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
        PretrainingModel(PretrainingConfig.from_dict(toy | {"toy_teacher": str(tmp_path)}))


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


def test_every_objective_has_a_flag_of_the_configuration_and_a_loss():
    names = set(PretrainingConfig.__dataclass_fields__)
    assert len(OBJECTIVES) >= 25
    every: list[AnyObjective] = [*OBJECTIVES, MaskedLM]
    for kind in every:
        assert not kind.flag or kind.flag in names
        assert kind.loss_name and set(kind.implies) <= names
    assert len({kind.loss_name for kind in OBJECTIVES}) == len(OBJECTIVES) - 1  # detection's, of two papers
