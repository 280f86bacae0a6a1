"""Distillation from a teacher, as the configuration knows it (pretrain.objectives.distillation computes it)."""

from collections.abc import Iterator
from functools import partial

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exchange.formats.folders import network_hparams
from electra_tf2.model.flops import Part, language_model_head
from electra_tf2.pretrain.objectives.spec import Needs, ObjectiveSpec, TeacherNeed

_MODULE = "electra_tf2.pretrain.objectives.distillation"


def _learns_tokens(c: PretrainingConfig) -> bool:
    return bool(c.teacher and c.distill_token_weight and not c.trains_main_network)


def _learns_detection(c: PretrainingConfig) -> bool:
    return bool(c.teacher and c.distill_detection_weight and c.electra_objective)


def _learns_states(c: PretrainingConfig) -> bool:
    return bool(c.teacher and c.distill_hidden_weight)


def _needs(c: PretrainingConfig) -> Needs:
    assert c.teacher
    return Needs(
        teacher=TeacherNeed(
            c.teacher,
            reads="corrupted" if c.trains_main_network else "masked",
            detection=_learns_detection(c),
            tokens=_learns_tokens(c),
        )
    )


def _problems(c: PretrainingConfig) -> Iterator[str]:
    if c.trains_main_network and not c.electra_objective:
        yield "teacher needs electra_objective, or BERT's masked language model"
    if not c.trains_main_network and c.uniform_generator:
        yield "teacher needs a network that learns from it: not uniform_generator alone"
    if not network_hparams(c.teacher or ""):
        yield f"teacher: {c.teacher} holds no configuration of a model"
        return
    teacher = _needs(c).teacher
    assert teacher is not None
    theirs, ours = teacher.architecture, c.architecture
    if theirs.hidden_size != ours.hidden_size and _learns_states(c):
        yield (
            f"distill_hidden_weight compares states: the teacher's are {theirs.hidden_size} wide, here it is "
            f"{ours.hidden_size}; set it to 0"
        )
    if c.init_from_teacher and ours.num_hidden_layers > theirs.num_hidden_layers:
        yield f"init_from_teacher: there are {ours.num_hidden_layers} layers, and {theirs.num_hidden_layers} to take"
    if c.max_seq_length > theirs.max_position_embeddings and theirs.positions.embedded:
        yield f"the teacher reads {theirs.max_position_embeddings} tokens, max_seq_length is {c.max_seq_length}"


def _token_parts(c: PretrainingConfig) -> list[Part]:
    teacher = _needs(c).teacher
    assert teacher is not None
    sizes = teacher.architecture
    head = language_model_head("teacher's masked-LM head", sizes.hidden_size, sizes, c.max_predictions_per_seq)
    return [head._replace(parameters=0, backward=False)]


_term = partial(ObjectiveSpec, flag="", role="beside", needs=_needs)

SPECS = (
    _term(objectives=(f"{_MODULE}:SoftTokens",), chosen=_learns_tokens, parts=_token_parts, without_main=True),
    _term(objectives=(f"{_MODULE}:SoftDetection",), chosen=_learns_detection),
    _term(objectives=(f"{_MODULE}:StateCosine",), chosen=_learns_states, without_main=True),
    ObjectiveSpec(  # what has to be said once, whatever is learned
        flag="teacher",
        title="distillation from a teacher (DistilBERT)",
        role="beside",
        objectives=(),
        problems=_problems,
        without_main=True,
    ),
)
