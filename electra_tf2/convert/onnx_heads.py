"""Heads of fine-tuned models as ONNX, and the check of what was written against `predict`'s numbers.

The outputs of a task, which those of several begin with its name and a dot:

    classification             logits [B, C]
    regression                 value [B], on the task's scale
    tagging                    logits [B, L, C], of every wordpiece; a word's are those of its first
    question answering         start_logits, end_logits [B, L], or with joint_prediction the best starts and, for each,
                               ends: start_top_*, end_top_*; answerable_logit [B], positive where there is no answer
    multiple choice            logits [B] of candidates, or [B, 2] where each is right or wrong by itself
    two spans beside a text    logits [B, C]; span_1 and span_2, int64 [B, L], are inputs that mark them

B batch, L length, C classes, H hidden.
"""

from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert import onnx_network as onnx
from electra_tf2.convert.head_outputs import comparable, compared, refuse_prompts
from electra_tf2.convert.network_file import Comparison
from electra_tf2.convert.onnx_network import Peaks, Written, main_states, started
from electra_tf2.finetune.tasks.choice import ChoiceTask
from electra_tf2.finetune.tasks.qa import FORBIDDEN, QATask
from electra_tf2.finetune.tasks.spans import SpanTask
from electra_tf2.finetune.tasks.tagging import TaggingTask
from electra_tf2.finetune.tasks.targets import Scale
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.finetune.tasks.text import TextTask
from electra_tf2.finetune.tasks.text_heads import NUM_SPANS, span_label
from electra_tf2.inference.predictor import Predictor
from electra_tf2.inference.stored_model import StoredModel
from electra_tf2.util.errors import UserError

_ROWS = ("batch", "length")


class _Heads:
    """Adds the heads of tasks to a graph that has the encoder's states."""

    def __init__(self, written: Written, config: FinetuningConfig, states: str) -> None:
        self.written, self.graph, self.inputs = written, written.graph, written.inputs
        self.config, self.states = config, states

    def add(self, task: Task, prefix: str) -> dict[str, Any]:
        """Adds a task's head, its outputs' names after a prefix; returns what they mean."""
        scope = f"task_specific/{task.name}"
        if isinstance(task, QATask):
            return self._of_tokens(scope)._answers(scope, prefix)
        if isinstance(task, TaggingTask):
            logits = self.graph.dense(self._of_tokens(scope).states, f"{scope}/dense")
            self.graph.output(f"{prefix}logits", logits, *_ROWS, len(task.label_names))
            return {"labels": list(task.label_names)}
        if isinstance(task, ChoiceTask):
            if task.choices > 1:
                logits = self.graph.op("Squeeze", self._of_text(f"{scope}/choice", scope), self.graph.ints(-1))
                self.graph.output(f"{prefix}logits", logits, "batch")
            else:
                self.graph.output(f"{prefix}logits", self._of_text(f"{scope}/dense", scope), "batch", 2)
            return {"candidates": task.choices}
        if not isinstance(task, TextTask):
            raise UserError(f"{task.name}: a task of one's own in Python has a head of its own: --format electra")
        if isinstance(task, SpanTask):
            logits = self._of_text(f"{scope}/spans", scope, NUM_SPANS)
        else:
            logits = self._of_text(f"{scope}/dense", scope)
        said = {"average_of_both_orders": True} if task.averages_orders else {}
        target = task.target
        if isinstance(target, Scale):
            share = self.graph.op("Squeeze", logits, self.graph.ints(-1))
            value = self.graph.op("Mul", share, self.graph.constant(target.high - target.low))
            value = self.graph.op("Add", value, self.graph.constant(target.low))
            self.graph.output(f"{prefix}value", value, "batch")
            return said | {"scale": [target.low, target.high]}
        self.graph.output(f"{prefix}logits", logits, "batch", len(target.names))
        return said | {"labels": list(target.names)}

    def _of_tokens(self, scope: str) -> "_Heads":
        """Heads on what a prediction head of all tokens' states gives, where there is one (head_style modernbert)."""
        if f"{scope}/head/dense/kernel" not in self.graph.weights:
            return self
        act = self.config.architecture.hidden_act
        return _Heads(self.written, self.config, onnx.prediction_head(self.graph, self.states, f"{scope}/head", act))

    def _of_text(self, last: str, scope: str, spans: int = 0) -> str:
        """[B, outputs] (finetune.tasks.text_heads.TextHead)."""
        g, marks = self.graph, self.inputs.marks
        if self.config.classifier_pooling == "mean":
            state = onnx.mean_state(g, self.states, marks)
        else:
            state = onnx.first_state(g, self.states)
        beside = [g.floats(g.input(span_label(number), _ROWS)) for number in range(spans)]
        if beside:
            state = g.op("Concat", state, *(onnx.mean_state(g, self.states, span) for span in beside), axis=1)
        if f"{scope}/head/dense/kernel" in g.weights:
            state = onnx.prediction_head(g, state, f"{scope}/head", self.config.architecture.hidden_act)
        elif self.config.classifier != "linear":
            state = g.activation(g.dense(state, f"{scope}/inner"), self.config.classifier)
        return g.dense(state, last)

    def _answers(self, scope: str, prefix: str) -> dict[str, Any]:
        """finetune.tasks.qa.AnswerHead."""
        g, config = self.graph, self.config
        inside = g.op("Mul", self.inputs.marks, g.floats(self.inputs.types))
        first = g.op("Equal", self.inputs.positions(), g.constant(0, "int64"))  # [CLS]: no answer here
        allowed = g.op("Where", first, g.constant(1), inside)
        penalty = g.op("Mul", g.op("Sub", allowed, g.constant(1)), g.constant(FORBIDDEN))
        start_logits = g.op("Add", self._logit(self.states, f"{scope}/start"), penalty)
        if config.joint_prediction:
            self._joint(scope, prefix, start_logits, penalty)
        else:
            g.output(f"{prefix}start_logits", start_logits, *_ROWS)
            g.output(f"{prefix}end_logits", g.op("Add", self._logit(self.states, f"{scope}/end"), penalty), *_ROWS)
        if config.answerable_classifier:
            features = onnx.first_state(g, self.states)
            if config.answerable_uses_start_logits:
                shares = g.op("Unsqueeze", g.op("Softmax", start_logits, axis=-1), g.ints(1))
                start = g.op("Squeeze", g.op("MatMul", shares, self.states), g.ints(1))
                features = g.dense(g.op("Concat", features, start, axis=1), f"{scope}/answerable_hidden")
                features = g.activation(features, "gelu")
            g.output(f"{prefix}answerable_logit", self._logit(features, f"{scope}/answerable"), "batch")
        return {"max_answer_length": config.max_answer_length, "max_query_length": config.max_query_length}

    def _joint(self, scope: str, prefix: str, start_logits: str, penalty: str) -> None:
        """The best starts, and for each of them the best ends."""
        g, hidden = self.graph, f"{scope}/end_hidden"
        length = g.op("Unsqueeze", self.inputs.length, g.ints(0))
        size = g.op("Min", length, g.ints(self.config.beam_size))
        of_start, starts = g.split("TopK", g.op("LogSoftmax", start_logits, axis=-1), size, parts=2, axis=-1)
        states = g.op("GatherND", self.states, g.op("Unsqueeze", starts, g.ints(2)), batch_dims=1)  # [B, K, H]
        kernel = g.weights[f"{hidden}/kernel"]
        width = len(kernel) // 2
        from_start = g.dense(states, f"{hidden}/of_start", kernel[:width], g.weights[f"{hidden}/bias"])
        from_end = g.dense(self.states, f"{hidden}/of_end", kernel[width:])
        both = g.op("Add", g.op("Unsqueeze", from_start, g.ints(2)), g.op("Unsqueeze", from_end, g.ints(1)))
        logits = self._logit(g.activation(both, "gelu"), f"{scope}/end")  # [B, K, L]
        logits = g.op("Add", logits, g.op("Unsqueeze", penalty, g.ints(1)))
        of_end, ends = g.split("TopK", g.op("LogSoftmax", logits, axis=-1), size, parts=2, axis=-1)
        g.output(f"{prefix}start_top_log_probs", of_start, "batch", "starts")
        g.output(f"{prefix}start_top_index", starts, "batch", "starts", dtype="int64")
        g.output(f"{prefix}end_top_log_probs", of_end, "batch", "starts", "ends")
        g.output(f"{prefix}end_top_index", ends, "batch", "starts", "ends", dtype="int64")

    def _logit(self, x: str, name: str) -> str:
        return self.graph.op("Squeeze", self.graph.dense(x, name), self.graph.ints(-1))


def fine_tuned(predictor: Predictor, model: StoredModel, packed: bool = False, peaks: Peaks = None) -> Written:
    """A fine-tuned network with the heads of all its tasks; `packed` and `peaks` as of `Graph`. Raises UserError: a
    head that reads more than text."""
    refuse_prompts(predictor)
    written = started(model, packed, peaks)
    written.about["max_length"] = min(written.about["max_length"], predictor.config.max_seq_length)
    heads = _Heads(written, predictor.config, main_states(written, model))
    several = len(predictor.tasks) > 1
    said = {}
    for task in predictor.tasks:
        kind = {"kind": predictor.config.kind_of(task.name)}
        said[task.name] = kind | heads.add(task, f"{task.name}." if several else "")
    written.about["tasks"] = said
    return written


def comparison(predictor: Predictor, model: StoredModel) -> Comparison:
    """The fixed sentences and what the heads say of them in TensorFlow."""
    return compared(predictor, model)._replace(read=lambda outputs: _as_predictions(predictor, outputs))


def _as_predictions(predictor: Predictor, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A file's outputs in the terms of `answers_of`; numbers only: classes and places follow from them."""
    found: dict[str, np.ndarray] = {}
    for task in predictor.tasks:
        prefix = f"{task.name}." if len(predictor.tasks) > 1 else ""
        values = {name.removeprefix(prefix): value for name, value in outputs.items() if name.startswith(prefix)}
        values = {name: value for name, value in values.items() if value.dtype == np.float32}
        if isinstance(task, TaggingTask):
            values = {"scores": softmax(values["logits"], -1).max(-1)}
        elif isinstance(task, ChoiceTask) and task.choices > 1:
            values = {"log_probs": log_softmax(values["logits"].reshape(-1, task.choices), -1).ravel()}
        found |= {f"{task.name}.{name}": value for name, value in values.items()}
    return comparable(predictor, found)
