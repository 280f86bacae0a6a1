"""Hparams of auxiliary tasks, their checks and costs.

"On Losses for Modern Language Models" (Aroca-Ouellette & Rudzicz 2020); papers.on_losses.model says how they work.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.flops import Part, contrast_head, encoder
from electra_tf2.papers.on_losses.records import extra_fields
from electra_tf2.util.hparams import closest, free_hparam, hparam

# Their names in aux_tasks, in the order of their variables in checkpoints.
TASKS = ("fs", "qt", "asp", "sdp", "so", "tf", "tf_idf", "tcp", "scp", "tgs")
# How to have tasks that cannot be trained at one step.
_TAKE_TURNS = "choose one, or an aux_combination that trains one at a time (alt, alt+, cmtl, cmtl+)"


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """Tasks, their weight, and how they take turns."""

    aux_tasks: list[str] = hparam(
        [],
        "auxiliary tasks beside the objective (On Losses), which predict: so (sentence order): whether the two "
        "segments were swapped; tgs (trigram shuffling): the order in which three tokens stood; tcp (token "
        "corruption): which tokens were tampered with; scp (sequence corruption): whether any was; qt (quick "
        "thoughts): which halves of records belong together; fs (FastSent): the other half's words; asp (adjacent "
        "segments): whether the second segment follows, precedes or is of another document; sdp (same document): "
        "whether it follows, is from elsewhere in the document or of another; tf, tf_idf (term frequency): how often "
        "a token occurs in its record, 0 to 10. asp and sdp need records of electra build-data --paper on_losses",
        heading="Auxiliary tasks",
    )
    aux_weight: float = hparam(
        1.0,
        "weight of each auxiliary task's loss; tf and tf_idf have squared errors of up to 100, fs of up to 4, the "
        "others the cross-entropy of a choice",
        at_least=0,
    )
    aux_combination: str = hparam(
        "sum",
        "what is trained at a step: sum: everything; inc: one task more at each stage; alt: objective and tasks in "
        "turn; cmtl: one of them, in stages; alt+, cmtl+: the objective always, and one task beside it",
        choices=("sum", "inc", "alt", "alt+", "cmtl", "cmtl+"),
    )
    use_task_ids: bool = hparam(
        False,
        "a learned vector of each step's auxiliary task is added to the network's inputs; needs an aux_combination "
        "that takes turns",
    )
    document_frequency_file: str = free_hparam(
        "", "file of tf_idf's table, of electra build-table; default <data_dir>/document_frequency.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "document_frequency.npz")
        return super().derived() | {"document_frequency_file": self.document_frequency_file or default}

    @property
    def half_length(self) -> int:
        """Tokens of half of a full-length sequence, special ones included."""
        return (self.max_seq_length - 1) // 2 + 2

    @property
    def takes_turns(self) -> bool:
        """True if some steps train other tasks than others."""
        return bool(self.aux_tasks) and self.aux_combination != "sum"

    @property
    def needs_whole_batch(self) -> bool:
        return super().needs_whole_batch or "qt" in self.aux_tasks

    @property
    def extra_fields(self) -> Mapping[str, tuple[int, int]]:
        return extra_fields(self.max_seq_length, self.vocab_size) if {"asp", "sdp"} & {*self.aux_tasks} else {}

    @property
    def free_to_change(self) -> frozenset[str]:
        shares = self.aux_combination in ("inc", "cmtl", "cmtl+")
        return super().free_to_change - ({"num_train_steps"} if shares else set())

    def together(self, *tasks: str) -> list[str]:
        """Those of these tasks that a run trains at one step, if there is such a step."""
        return [task for task in self.aux_tasks if task in tasks] if self.aux_combination in ("sum", "inc") else []

    def objective_problems(self) -> Iterable[str]:
        yield from super().objective_problems()
        tasks, how = self.aux_tasks, self.aux_combination
        for task in tasks:
            if task not in TASKS:
                yield f"aux_tasks has {task!r}{closest(task, TASKS)} (some of {', '.join(TASKS)})"
        if any(tasks.count(task) > 1 for task in tasks):
            yield f"aux_tasks names a task twice: {', '.join(map(str, tasks))}"
        if how != "sum" and not tasks:
            yield f"aux_combination {how} needs aux_tasks"
        elif how == "cmtl+" and len(tasks) < 2:
            yield "aux_combination cmtl+ needs two aux_tasks or more: with one, it is sum"
        if self.use_task_ids and how in ("sum", "inc"):
            yield f"use_task_ids needs tasks that take turns: aux_combination {how} trains several"
        elif self.use_task_ids and how.endswith("+") and len(tasks) < 2:
            yield f"use_task_ids with aux_combination {how} needs two aux_tasks or more to tell apart"
        if "qt" in tasks and not self.trains_main_network and self.uniform_generator:
            yield "aux_tasks qt needs a network"
        yield from self._conflicts()

    def _conflicts(self) -> Iterator[str]:
        """Tasks that cannot be trained at the same step, since one changes what another asks about."""
        moved, segments = self.together("tcp", "scp"), self.together("so", "asp", "sdp")
        if self.together("tgs") and moved:
            yield (
                f"aux_tasks tgs moves tokens of which {', '.join(moved)} says whether they were changed: {_TAKE_TURNS}"
            )
        if len(moved) > 1:
            yield f"aux_tasks tcp tampers with every sequence, so none would be left as it was for scp: {_TAKE_TURNS}"
        relation = next((task for task in segments if task != "so"), None)
        if relation is not None and len(segments) > 1:
            yield f"aux_tasks {', '.join(segments)} rearrange the same two segments: {_TAKE_TURNS}"
        in_halves = self.together("qt", "fs")
        if relation is not None and in_halves:
            yield (
                f"aux_tasks {', '.join(in_halves)} want halves of one text, {relation} puts text of others there: "
                f"{_TAKE_TURNS}"
            )

    def further_parts(self) -> list[Part]:
        sizes, length, half, tasks = self.architecture, self.max_seq_length, self.half_length, self.aux_tasks
        hidden, parts = sizes.hidden_size, []
        if self.use_task_ids:
            parts.append(Part("vectors of tasks", len(tasks) * sizes.embedding_size, 0))
        halves = encoder(f"main network on {half} tokens", sizes, half)._replace(parameters=0)
        parts += [halves] * 2 * len({"fs", "qt"} & {*tasks})
        if "fs" in tasks:
            vectors = 2 * (1 + half)
            flops = 2 * vectors * hidden * hidden + 2 * 2 * half * hidden
            parts.append(Part("FastSent", 2 * (hidden * hidden + 3 * hidden), flops))
        if "qt" in tasks:
            parts.append(contrast_head("quick thoughts", sizes))
        heads = {  # numbers that a head gives, and states that it reads, of [CLS] alone if 0
            "asp": (3, 0),
            "sdp": (3, 0),
            "so": (2, 0),
            "scp": (2, 0),
            "tf": (1, length),
            "tf_idf": (1, length),
            "tcp": (2, length),
            "tgs": (6, (length - 1) // 3),
        }
        return parts + [task_head(task, sizes, *heads[task]) for task in tasks if task in heads]


def task_head(task: str, a: Architecture, classes: int, states: int) -> Part:
    """Cost of a `TaskHead`, which has a layer norm where it reads every state."""
    hidden, together = a.hidden_size, 3 if task == "tgs" else 1
    kernels, norm = together * hidden * hidden + hidden * classes, 2 * hidden if states else 0
    return Part(f"head of {task}", kernels + hidden + norm + classes, 2 * max(1, states) * kernels)
