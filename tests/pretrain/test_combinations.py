"""Acceptance of the seams: whatever combination of objective, generator, unit, positions, norm and precision is legal
trains with finite losses, and what is not is refused with a reason before anything is built."""

import functools
import random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.cooccurrence import write_cooccurrence
from electra_tf2.corpus.pmi_vocabulary import NgramVocabulary, write_vocabulary
from electra_tf2.model import kernels
from electra_tf2.model.architecture import PRESETS
from electra_tf2.model.positions import SCHEMES
from electra_tf2.pretrain.masking_units import UNITS as MASKING_UNITS
from electra_tf2.pretrain.objectives.catalogue import OBJECTIVES
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.pretrain.task import PretrainingTask
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.pretrain.test_mpa import VOCAB, batch_of, random_table

OFF = {"electra_objective": False}
MAIN: list[dict[str, Any]] = [
    {},
    OFF,
    {"disc_tokens": "masked"},
    OFF | {"electric_objective": True},
    OFF | {"corrective_lm_objective": True},
    OFF | {"corrective_lm_objective": True, "clm_loss": "weighted_ce"},
    OFF | {"replace_mlm_objective": True},
    OFF | {"all_tokens_mlm_objective": True},
    OFF | {"multiple_choice_objective": True, "choice_candidates": 3},
    {"adversarial_generator": True},
]
BESIDE: list[dict[str, Any]] = [
    {},
    {"sequence_contrast_objective": True},
    {"mpa_objective": True},
    {"mpa_objective": True, "mpa_layers": [0, -1], "mpa_stop_gradient": False},
    {"mpa_objective": True, "mpa_target": "prob_mass"},
]
GENERATOR: list[dict[str, Any]] = [
    {},
    {"uniform_generator": True},
    {"two_tower_generator": True},
    {"untied_generator": False},
    {"embedding_sharing": "nes"},
    {"embedding_sharing": "gdes"},
    {"generator_sample_mode": "eval"},
    {"generator_sample_mode": "zero_dropout"},
    {"generator_exits": [1, 2], "generator_layers": 2.0},
    {"embedding_sharing": "nes", "freeze_generator": True, "initial_temperature": 2.0, "temperature_decay": 0.1},
]
BESIDE += [{"teacher": "teacher"}]  # a folder of the fixture
LISTED = {"electra_objective", *(flag for one in (*MAIN, *BESIDE) for flag in one)}
# What else the catalogue has.
SPECS = {kind.flag: kind for kind in OBJECTIVES if kind.flag and kind.flag not in LISTED}.values()
MAIN += [OFF | {spec.flag: True} for spec in SPECS if spec.role != "beside"]
BESIDE += [{spec.flag: True} for spec in SPECS if spec.role == "beside"]
AUXILIARY: list[dict[str, Any]] = [
    {},
    {},
    {"aux_tasks": ["so"]},
    {"aux_tasks": ["tf", "qt"], "aux_combination": "cmtl+"},
]
WITHOUT = {"mask_sampling": "without_replacement"}
UNITS: list[dict[str, Any]] = [{}, WITHOUT]
UNITS += [WITHOUT | {"mask_unit": unit} for unit in MASKING_UNITS if unit != "token"]
NEVER: dict[str, Any] = {"mask_unit": "span"}  # with replacement
UNITS += [NEVER]
POSITIONS: list[dict[str, Any]] = [{"relative_positions": scheme} for scheme in SCHEMES]
NORMS: list[dict[str, Any]] = [{"norm_style": "post"}, {"norm_style": "pre"}]
PRECISIONS: list[dict[str, Any]] = [{"precision": name} for name in ("float32", "bfloat16", "float16")]
ARCHITECTURES: list[dict[str, Any]] = [{"architecture": name} for name in PRESETS]
AXES = (MAIN, BESIDE, AUXILIARY, GENERATOR, UNITS, POSITIONS, NORMS, ARCHITECTURES, PRECISIONS)
WANTED, WANTED_ALWAYS = 200, 20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_cooccurrence(str(folder / "cooccurrence.npz"), random_table(), VOCAB)
    ngrams = NgramVocabulary(
        ids=np.array([21, 22, 23, 24, 25], np.int32),
        ends=np.array([2, 5]),
        words=np.array([2, 3], np.int32),
        scores=np.zeros(2, np.float32),
        counts=np.ones(2, np.int64),
    )
    write_vocabulary(str(folder / "pmi_vocab.npz"), ngrams, VOCAB)
    # One network that detects and predicts, so it can teach both.
    config = PretrainingConfig.from_dict(settings_of(folder, untied_generator=False))
    with kernels.off():
        model = PretrainingModel(config)
    tf.train.Checkpoint(model=model).save(str(folder / "teacher" / "model.ckpt"))
    (folder / "teacher" / "config.json").write_text(config.to_json())
    return folder


def settings_of(folder, **given):
    switches = ("relative_positions", "norm_style", "architecture")
    sizes: dict[str, Any] = {name: given.pop(name) for name in switches if name in given}
    sizes |= {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    return support.hparams(folder, sizes=sizes, mask_prob=0.3, num_train_steps=10, num_warmup_steps=0, **given)


def label_of(places):
    chosen = (axis[place] for axis, place in zip(AXES, places, strict=True))
    return ", ".join(f"{name}={value}" for one in chosen for name, value in one.items())


@functools.cache
def drawn(folder, number):
    """So many legal combinations, different ones, and the reasons why others are none; by places on the axes."""
    draw = random.Random(0)
    legal: dict[tuple[int, ...], dict[str, Any]] = {}
    refused: dict[tuple[int, ...], str] = {}
    while len(legal) < number:
        places = tuple(draw.randrange(len(axis)) for axis in AXES)
        given: dict[str, Any] = {}
        for axis, place in zip(AXES, places, strict=True):
            given |= axis[place]
        if "teacher" in given:
            given["teacher"] = str(folder / given["teacher"])
        settings = settings_of(folder, **given)
        try:
            PretrainingConfig.from_dict(settings)
            legal[places] = settings
        except UserError as error:
            refused[places] = str(error)
    return legal, refused


def batch(seed):
    """Records of two segments."""
    features = batch_of(seed=seed)
    places = tf.range(support.LENGTH)
    features["input_ids"] = tf.where(places == 7, 3, features["input_ids"])
    return features | {"segment_ids": tf.where(places > 7, features["input_mask"], 0)}


def train(settings, graph):
    config = PretrainingConfig.from_dict(settings)
    with kernels.off():
        task = PretrainingTask(config, tf.distribute.OneDeviceStrategy("CPU:0"))
        before = [variable.numpy() for variable in task.model.trained_variables]
        step = tf.function(task.train_step, autograph=False) if graph else task.train_step
        results = [step(batch(number), tf.constant(number, tf.int64)) for number in range(2)]
    assert all(np.isfinite(float(loss)) for result in results for loss in result["losses"].values())
    assert all(np.isfinite(variable.numpy()).all() for variable in task.model.trainable_variables)
    after = [variable.numpy() for variable in task.model.trained_variables]
    if config.precision != "float16":  # whose loss scale starts too high and skips the first updates
        assert any((now != then).any() for now, then in zip(after, before, strict=True))


def check(folder, numbers, graph=False):
    legal, _ = drawn(folder, WANTED)
    for places, settings in [list(legal.items())[number] for number in numbers]:
        try:
            train(settings, graph)
        except Exception as error:
            raise AssertionError(f"{label_of(places)}: {error}") from error


def test_some_combinations_train(files):
    check(files, range(0, WANTED, WANTED // WANTED_ALWAYS))


@pytest.mark.slow
def test_all_combinations_train(files):
    check(files, range(WANTED), graph=True)


def test_what_is_refused_has_its_reason_and_all_there_is_is_drawn(files):
    legal, refused = drawn(files, WANTED)
    assert len(refused) > WANTED / 4
    assert all(reason.startswith("hparams: ") for reason in refused.values())
    options = {(number, place) for number, axis in enumerate(AXES) for place in range(len(axis))}
    taken = {option for places in legal for option in enumerate(places)}
    assert [AXES[number][place] for number, place in options - taken] == [NEVER]
