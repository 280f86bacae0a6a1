"""Reads Hugging Face directories, as `transformers` writes them. `huggingface_export` writes them.

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Needs neither PyTorch nor transformers. huggingface_config translates configurations, huggingface_tokenizer tokenizers,
huggingface_names tensors; huggingface_tensors reads weights; huggingface_field has what transformers does not know of a
model. numpy is imported when weights are asked for.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.formats import huggingface_config, huggingface_tokenizer
from electra_tf2.formats.huggingface_field import (
    TrainedTask,
    masking_hparams,
    trained_task,
)
from electra_tf2.formats.stored_model import (
    DETECTOR,
    LONGEST_INPUT,
    Casing,
    Hints,
    StoredModel,
    default_run_hparams,
    weights_module,
)

if TYPE_CHECKING:
    from electra_tf2.formats.huggingface_tensors import Tensors
    from electra_tf2.formats.stored_weights import Weights

# Kinds of our tasks, by the names that `huggingface_tensors.task_of` gives heads of theirs.
_KINDS = {"classes": "classification", "tags": "tagging", "answers": "qa"}
_CLASSIFIERS = {"electra": "gelu", "bert": "tanh", "modernbert": "linear"}  # layer before the classes, by model_type


# Reading.


class HuggingFaceDirectory(StoredModel):
    """A Hugging Face directory, with its config.json."""

    hints_in_files = ("num_attention_heads", "do_lower_case", "vocab_file")

    def __init__(self, folder: Path, config: dict[str, Any], hints: Hints) -> None:
        super().__init__(folder, hints)
        self._config = config

    @cached_property
    def origin(self) -> str:
        return f"{self.class_name or self._config['model_type']} in {self.folder.name}"

    @cached_property
    def network(self) -> dict[str, Any]:
        network = huggingface_config.network_of(self._config, self.folder)
        return network | self.casing.hparams | {"vocab_file": self.vocab_file}

    @cached_property
    def hparams(self) -> dict[str, Any]:
        kind = self._tensors.task
        if kind is not None:
            return self.network | self._task_hparams(kind)
        is_detector = f"{DETECTOR}/dense/kernel" in self.weights
        # There is no generator here, so its sizes do not matter; these fit any network.
        generator_sizes = {"generator_hidden_size": 1.0, "generator_layers": 1.0}
        network = self.network | {"electra_objective": is_detector} | generator_sizes
        return default_run_hparams(network, self.folder.name) | self.masking

    @cached_property
    def masking(self) -> dict[str, Any]:
        return masking_hparams(self._config)

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        kind = self._tensors.task
        if kind is None:
            return None
        if self._trained_task is not None:
            return {self._trained_task.name: self._trained_task.state}
        return {kind: self._task_state(kind)}

    @cached_property
    def _trained_task(self) -> TrainedTask | None:
        """The task of a model that left from here; None of others."""
        return trained_task(self._config, self.class_name, self._labels)

    @property
    def _labels(self) -> list[str]:
        return huggingface_config.labels_of(self._config)

    @property
    def _is_regression(self) -> bool:
        return self._config.get("problem_type") == "regression" or len(self._labels) == 1

    def _task_hparams(self, kind: str) -> dict[str, Any]:
        """Hparams of fine-tuning on the task that its head is of."""
        longest = self.network["model_hparam_overrides"]["max_position_embeddings"]
        hparams = {
            "task_names": [kind],
            "tasks": {kind: self._task_settings(kind)},
            "classifier": _CLASSIFIERS[self._config["model_type"]],
            "classifier_pooling": self._config.get("classifier_pooling", "cls"),
            "joint_prediction": False,
            "answerable_classifier": False,
            "max_seq_length": min(longest, LONGEST_INPUT),
        }
        if self._trained_task is not None:
            hparams |= self._trained_task.hparams
        return hparams

    def _task_settings(self, kind: str) -> dict[str, Any]:
        """Describes the task as far as transformers' fields tell of it."""
        settings: dict[str, Any] = {"type": _KINDS[kind]}
        if kind == "classes":
            settings["text_columns"] = ["text", "text_pair"] if self.hints.pairs else ["text"]
            if self._is_regression:
                settings["type"] = "regression"
            else:
                settings["labels"] = self._labels
        elif kind == "tags":
            settings["spans"] = False
        return settings

    def _task_state(self, kind: str) -> dict[str, Any]:
        """Meaning of the outputs of its head as far as transformers' fields tell it."""
        if kind == "answers":
            return {}
        if kind == "classes" and self._is_regression:
            return {"range": [0.0, 1.0]}
        return {"labels": self._labels}

    @cached_property
    def vocab_file(self) -> str:
        return str(huggingface_tokenizer.tokenizer_in(self.folder))

    @cached_property
    def tokens(self) -> list[str]:
        return huggingface_tokenizer.tokens_in(self.folder)

    @cached_property
    def casing(self) -> Casing:
        return huggingface_tokenizer.casing_of(self.folder)

    @cached_property
    def _tensors(self) -> "Tensors":
        from electra_tf2.formats.huggingface_tensors import read_weights

        return read_weights(self.folder, self._config, self.network)

    @cached_property
    def weights(self) -> "Weights":
        weights = self._tensors.weights
        if self._trained_task is not None:
            scope = f"task_specific/{self._tensors.task}/"
            new_scope = f"task_specific/{self._trained_task.name}/"
            weights = {name.replace(scope, new_scope): value for name, value in weights.items()}
        return weights_module().Weights(weights, self.path)

    @cached_property
    def left_out(self) -> list[str]:
        return self._tensors.left_out

    @cached_property
    def class_name(self) -> str:
        return huggingface_config.class_of(self._config)
