"""What an objective declares, free of TensorFlow, in a `*_spec.py` beside the file that computes it.

The configuration reads which objectives a run has and what they forbid, `pretrain.flops` what they cost,
`pretrain.pretraining_model` what to build and what the forward pass must compute. `SPECS` of such a file is found by
name (util.catalogue); no other file lists objectives.
"""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exchange.formats.folders import network_hparams
from electra_tf2.model.architecture import Architecture, make_architecture
from electra_tf2.model.flops import Part
from electra_tf2.util.errors import UserError


class TeacherNeed(NamedTuple):
    """A frozen network that reads the same sequences.

    checkpoint: folder of its model (`--init-checkpoint` takes the same).
    reads: the original sequences, the masked ones or the main network's corrupted ones.
    detection, tokens: whether its head that detects replaced tokens, or its masked language model, is asked, too.
    """

    checkpoint: str
    reads: Literal["original", "masked", "corrupted"] = "original"
    detection: bool = False
    tokens: bool = False

    @property
    def hparams(self) -> dict[str, Any]:
        """What its configuration says of its network and its input (exchange.formats.folders)."""
        hparams = network_hparams(self.checkpoint)
        if not hparams:
            raise UserError(f"teacher: {self.checkpoint!r} holds no configuration of a model, which a teacher needs")
        return hparams

    @property
    def architecture(self) -> Architecture:
        """Its sizes."""
        names = ("model_size", "model_hparam_overrides", "vocab_size", "embedding_size")
        return make_architecture(*map(self.hparams.__getitem__, names))


class Needs(NamedTuple):
    """What an objective needs of the forward pass besides the main network's states.

    views: lengths of the sequences of further passes of the network that is kept (`Objective.views`).
    attention: (layer, head) of the main network, or of BERT's only one, both from 0, whose attention maps are kept.
    teacher: a teacher's pass.
    whole_batch: rows are related to all others of their replica; with several micro-batches that takes a further
      forward pass (`Objective.shared`).
    two_segments: records must have a second segment.
    other_segments: fields of records that must hold text that could stand in its place (corpus.other_segments).
    """

    views: tuple[int, ...] = ()
    attention: frozenset[tuple[int, int]] = frozenset()
    teacher: TeacherNeed | None = None
    whole_batch: bool = False
    two_segments: bool = False
    other_segments: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class ObjectiveSpec:
    """One entry of the catalogue.

    flag: the hparam that asks for it; "" where `task` or `chosen` decides alone.
    role: "generator" trains the generator, every run has one; "main" trains the main network, a run has one at most;
      "beside" comes with a main one.
    objectives: "module:class" of its loss terms in the order in which they are built.
    chosen: whether a run has it; default: if `flag` is true.
    problems: why a run that has it cannot be, one sentence each.
    parts: its heads and further passes, priced.
    task: the name in aux_tasks that asks for it.
    title: what the card of an exported model says of it; every flag has one.
    without_main: of role "beside": whether it may come with the generator alone, as in BERT.
    """

    flag: str
    role: Literal["generator", "main", "beside"]
    objectives: tuple[str, ...]
    chosen: Callable[[PretrainingConfig], bool] | None = None
    problems: Callable[[PretrainingConfig], Iterator[str]] = lambda config: iter(())
    parts: Callable[[PretrainingConfig], list[Part]] = lambda config: []
    needs: Callable[[PretrainingConfig], Needs] = lambda config: Needs()
    task: str = ""
    title: str = ""
    without_main: bool = False

    def is_chosen(self, config: PretrainingConfig) -> bool:
        if self.task:
            return self.task in config.aux_tasks
        return self.chosen(config) if self.chosen is not None else bool(getattr(config, self.flag))


# What the entries of aux_tasks have in common.
auxiliary_task = partial(ObjectiveSpec, flag="", role="beside", without_main=True)


def trained_together(config: PretrainingConfig, *tasks: str) -> list[str]:
    """Which of these aux_tasks a run trains at one step, if there is such a step."""
    return [task for task in config.aux_tasks if task in tasks] if config.aux_combination in ("sum", "inc") else []


# How to have tasks that cannot be trained at one step.
TAKE_TURNS = "choose one, or an aux_combination that trains one at a time (alt, alt+, cmtl, cmtl+)"


def needs_of(config: PretrainingConfig) -> Needs:
    """What the objectives of a run need, together."""
    every = [spec.needs(config) for spec in config.objectives]
    teachers = {needs.teacher for needs in every if needs.teacher is not None}
    assert len(teachers) <= 1, f"a run has one teacher, not {teachers}"
    return Needs(
        views=tuple(length for needs in every for length in needs.views),
        attention=frozenset().union(*(needs.attention for needs in every)),
        teacher=next(iter(teachers), None),
        whole_batch=any(needs.whole_batch for needs in every),
        two_segments=any(needs.two_segments for needs in every),
        other_segments=frozenset().union(*(needs.other_segments for needs in every)),
    )
