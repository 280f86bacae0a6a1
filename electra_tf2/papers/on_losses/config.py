"""Hparams of auxiliary tasks, their checks and costs.

"On Losses for Modern Language Models" (Aroca-Ouellette & Rudzicz 2020); papers.on_losses.model says how they work.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from electra_tf2.config.hparams import free_hparam, hparam
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.architecture import Architecture
from electra_tf2.model.costs import Part, contrast_head, encoder
from electra_tf2.util.errors import closest

# Names of the tasks, in the order of their variables in checkpoints.
TASKS = ("fs", "qt", "asp", "so", "tf", "tf_idf")
# Advice on tasks that cannot be trained at the same step.
_TAKE_TURNS = "choose one, or an aux_combination that trains one at a time (alt, alt+, cmtl, cmtl+)"


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """ELECTRA or BERT with auxiliary tasks."""

    aux_tasks: list[str] = hparam(
        [],
        "auxiliary tasks beside the objective (On Losses), which predict: so (sentence order): whether the two "
        "segments were swapped; asp (adjacent sentences): whether the second segment follows, precedes or is of "
        "another record; qt (quick thoughts): which halves of records belong together; fs (FastSent): the other half's "
        "words; tf, tf_idf (term frequency): how often a token occurs in its record, 0 to 10",
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
    aux_steps: int = hparam(
        0,
        "steps that the stages of inc, cmtl and cmtl+ divide; 0: num_train_steps. Such a run goes on for longer with "
        "the number that it began with",
        at_least=0,
    )
    document_frequency_file: str = free_hparam(
        "", "file of tf_idf's table, of electra build-table; default <data_dir>/document_frequency.npz", place="read"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "document_frequency.npz")
        values: dict[str, Any] = {"document_frequency_file": self.document_frequency_file or default}
        if self.aux_combination in ("inc", "cmtl", "cmtl+"):
            # Fixed when the run begins. Were it to follow num_train_steps, a run that is prolonged would have had other
            # stages from the start.
            values["aux_steps"] = self.aux_steps or self.num_train_steps
        return super().derived() | values

    @property
    def half_length(self) -> int:
        """Length of half of a full-length sequence, special tokens included."""
        return (self.max_seq_length - 1) // 2 + 2

    @property
    def takes_turns(self) -> bool:
        """True if not all steps train the same tasks."""
        return bool(self.aux_tasks) and self.aux_combination != "sum"

    @property
    def needs_whole_batch(self) -> bool:
        return super().needs_whole_batch or "qt" in self.aux_tasks

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        tasks = self.aux_tasks
        for task in tasks:
            if task not in TASKS:
                yield f"aux_tasks has {task!r}{closest(task, TASKS)} (some of {', '.join(TASKS)})"
        if any(tasks.count(task) > 1 for task in tasks):
            yield f"aux_tasks names a task twice: {', '.join(map(str, tasks))}"
        if self.takes_turns:
            if self.aux_combination == "cmtl+" and len(tasks) < 2:
                yield "aux_combination cmtl+ needs two aux_tasks or more: with one, it is sum"
        elif self.aux_combination != "sum":
            yield f"aux_combination {self.aux_combination} needs aux_tasks"
        if self.aux_combination in ("sum", "inc"):
            yield from self._conflicts_at_a_step()

    def _conflicts_at_a_step(self) -> Iterator[str]:
        """Problems of tasks that cannot be trained at the same step, because one changes what another asks about."""
        tasks = self.aux_tasks
        if "asp" in tasks and "so" in tasks:
            yield f"aux_tasks so, asp rearrange the same two segments: {_TAKE_TURNS}"
        half_tasks = [task for task in tasks if task in ("qt", "fs")]
        if "asp" in tasks and half_tasks:
            yield (
                f"aux_tasks {', '.join(half_tasks)} want halves of one text, asp puts text of others there: "
                f"{_TAKE_TURNS}"
            )

    def further_parts(self) -> list[Part]:
        sizes = self.architecture
        parts = []
        for task in ("fs", "qt"):  # each reads both halves of every sequence
            if task in self.aux_tasks:
                network = encoder(f"main network on {self.half_length} tokens", sizes, self.half_length)
                parts += [network._replace(parameters=0)] * 2
        if "fs" in self.aux_tasks:
            parts.append(_fast_sent_heads(sizes, self.half_length))
        if "qt" in self.aux_tasks:
            parts.append(contrast_head("quick thoughts", sizes))
        if "asp" in self.aux_tasks:
            parts.append(_cls_head("asp", sizes, 3))
        if "so" in self.aux_tasks:
            parts.append(_cls_head("so", sizes, 2))
        for task in ("tf", "tf_idf"):
            if task in self.aux_tasks:
                parts.append(_token_head(task, sizes, self.max_seq_length))
        return parts


def _fast_sent_heads(sizes: Architecture, half_length: int) -> Part:
    """Costs of FastSent's two heads, on both halves of each sequence, and of the cosines."""
    hidden = sizes.hidden_size
    vectors = 2 * (1 + half_length)  # of [CLS] and of the words
    flops = 2 * vectors * hidden * hidden + 2 * 2 * half_length * hidden
    return Part("FastSent", 2 * (hidden * hidden + 3 * hidden), flops)


def _cls_head(task: str, sizes: Architecture, classes: int) -> Part:
    """Costs of a `TaskHead` that reads the [CLS] state."""
    hidden = sizes.hidden_size
    kernels = hidden * hidden + hidden * classes
    return Part(f"head of {task}", kernels + hidden + classes, 2 * kernels)


def _token_head(task: str, sizes: Architecture, length: int) -> Part:
    """Costs of a `TaskHead` that computes one number from each state."""
    hidden = sizes.hidden_size
    kernels = hidden * hidden + hidden
    layer_norm = 2 * hidden
    return Part(f"head of {task}", kernels + hidden + layer_norm + 1, 2 * length * kernels)
