"""All objectives that there are, in one list, and those of a run.

An objective of one's own is none of the list: the hparam `objectives` names it as "package.module:Class".
"""

import dataclasses
import functools
import importlib
import inspect
import os
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from electra_tf2.pretrain.hparams import PretrainingHparams
from electra_tf2.pretrain.objectives import (
    amos,
    bert,
    coco_lm,
    distilbert,
    electra,
    electra_ablations,
    electric,
    mc_bert,
    mpa,
    on_losses,
    on_losses_segments,
    on_losses_tokens,
)
from electra_tf2.pretrain.objectives.objective import Needs, Objective
from electra_tf2.util.environment import before_tensorflow
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.hparams import closest


@dataclasses.dataclass(frozen=True)
class ObjectiveHparams(
    on_losses.OnLossesHparams,
    distilbert.DistilHparams,
    mpa.MpaHparams,
    mc_bert.McBertHparams,
    amos.AmosHparams,
    coco_lm.CocoHparams,
    electric.ElectricHparams,
):
    """The hparams of all objectives; of these bases the last come first in --help."""


AnyObjective: TypeAlias = type[Objective[ObjectiveHparams]]

# Within a role the order is that in which they are built, and so that of their variables in checkpoints.
OBJECTIVES: tuple[AnyObjective, ...] = (
    electra_ablations.AdversarialGenerator,
    electric.ClozeLM,
    amos.MixtureLM,
    coco_lm.CopyDetection,
    coco_lm.CorrectiveLM,
    electra.ReplacedTokenDetection,
    electric.NoiseContrastive,
    mc_bert.MultipleChoice,
    electra_ablations.ReplaceMLM,
    electra_ablations.AllTokensMLM,
    distilbert.SoftTokens,
    distilbert.SoftDetection,
    distilbert.StateCosine,
    on_losses_segments.FastSent,
    mpa.AttentionRegulariser,
    on_losses_segments.QuickThoughts,
    on_losses_segments.AdjacentSegments,
    on_losses_segments.SameDocument,
    on_losses_segments.SentenceOrder,
    coco_lm.SequenceContrast,
    on_losses_tokens.TermFrequency,
    on_losses_tokens.TermFrequencyInverse,
    on_losses_tokens.TokenCorruption,
    on_losses_tokens.SequenceCorruption,
    on_losses_tokens.TrigramOrder,
)


def chosen(config: ObjectiveHparams, known: Sequence[AnyObjective]) -> tuple[AnyObjective, ...]:
    """The objectives of a run, of those that are known: the generator's, the main network's, those beside it.

    Where no other objective trains the generator, masked language modelling does.
    """
    every = [kind for kind in known if kind.is_chosen(config)]
    generator, main, beside = (
        [kind for kind in every if kind.role == role] for role in ("generator", "main", "beside")
    )
    return (*(generator or [bert.MaskedLM]), *main, *beside)


def problems(config: ObjectiveHparams, kinds: Sequence[AnyObjective]) -> Iterator[str]:
    """Reasons why the objectives of a run do not go together, each said by what owns the rule."""
    main = list(dict.fromkeys(kind.flag or kind.__name__ for kind in kinds if kind.role == "main"))
    if len(main) > 1:
        others = "; the others need electra_objective false" if "electra_objective" in main else ""
        yield f"{' and '.join(main)} are both true: choose one{others}"
    for kind in kinds:
        if kind.role == "beside" and not main and not kind.without_main:
            yield f"{kind.flag or kind.__name__} stands beside another: set one, too"
        yield from kind.problems(config)
    yield from on_losses.task_problems(config, [kind.task for kind in OBJECTIVES if kind.task])
    yield from distilbert.distillation_problems(config)
    sizes, needs = config.architecture, [kind.needs(config) for kind in kinds]
    layers, heads = sizes.num_hidden_layers, sizes.num_attention_heads
    wanted = sorted(Needs.together(needs).attention)
    lacking = [f"head {head} of layer {layer}" for layer, head in wanted if layer >= layers or head >= heads]
    if lacking:
        yield f"an objective reads {', '.join(lacking)} (from 0); there are {layers} layers of {heads} heads"
    teachers = {need.teacher.checkpoint for need in needs if need.teacher is not None}
    if len(teachers) > 1:
        yield f"a run has one teacher, not {' and '.join(sorted(teachers))}"


# Objectives of one's own.


@functools.cache
def own_objective(name: str) -> AnyObjective:
    """The class that "package.module:Class" names, from the folder where the program was started or on PYTHONPATH.
    Raises UserError: there is no such module or class, the module cannot be imported, or the class is no objective."""
    module_name, _, class_name = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), class_name]):
        raise UserError(f"objectives has {shown(name)}: a class is named as package.module:Class")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    before_tensorflow()  # which the module may import
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        where = f"sought in {os.getcwd()} and on PYTHONPATH" if isinstance(error, ImportError) else "while importing it"
        raise UserError(f"objectives: {name}: {type(error).__name__}: {error} ({where})") from error
    kind = getattr(module, class_name, None)
    if kind is None:
        classes = [
            key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Objective)
        ]
        raise UserError(f"objectives: {name}: {module.__file__} has no {class_name}{closest(class_name, classes)}")
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise UserError(f"objectives: {name} is no subclass of electra_tf2.pretrain.objectives.objective.Objective")
    if not hasattr(kind, "loss_name"):
        raise UserError(f"objectives: {name} has no loss_name")
    return kind


def hparams_of(kind: AnyObjective) -> type[PretrainingHparams]:
    """The dataclass that an objective's class is generic in: `class MyObjective(Objective[MyHparams])`."""
    for base in kind.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            for argument in typing.get_args(generic):
                if isinstance(argument, type) and issubclass(argument, PretrainingHparams):
                    return argument
    return PretrainingHparams


_extended: dict[tuple[type, tuple[str, ...]], type] = {}


def extended(config_class: type, names: tuple[str, ...]) -> type:
    """A configuration's class with the hparams of objectives of one's own; itself where they have none. Raises
    UserError: as `own_objective`; two objectives share a loss_name; an hparam has the name of another."""
    if not names or (config_class, names) in _extended:
        return _extended.get((config_class, names), config_class)
    kinds = [own_objective(name) for name in names]
    every: list[AnyObjective] = [bert.MaskedLM, *OBJECTIVES, *kinds]
    losses = [kind.loss_name for kind in every]
    taken, groups, seen = set(dir(config_class)), list[type](), set(config_class.__mro__)
    for name, kind in zip(names, kinds, strict=True):
        if losses.count(kind.loss_name) > 1:
            raise UserError(f"objectives: {name}: there is another objective with loss_name {kind.loss_name}")
        group = hparams_of(kind)
        if group not in seen:
            groups.append(group)
        for declaring in (one for one in group.__mro__ if one not in seen):
            seen.add(declaring)
            if "__dataclass_params__" not in vars(declaring):
                raise UserError(f"objectives: {name}: {declaring.__name__} is no @dataclasses.dataclass(frozen=True)")
            for field in inspect.get_annotations(declaring):
                if field in taken:
                    raise UserError(f"objectives: {name}: there is an hparam {field} already: rename it")
                if "help" not in vars(declaring)["__dataclass_fields__"][field].metadata:
                    raise UserError(f"objectives: {name}: {field} must be an hparam(default, help)")
                taken.add(field)
    groups = [one for one in groups if not any(one is not other and issubclass(other, one) for other in groups)]
    if not groups:
        return config_class
    wider: type = dataclasses.dataclass(frozen=True)(type(config_class.__name__, (*groups, config_class), {}))
    _extended[config_class, names] = wider
    return wider
