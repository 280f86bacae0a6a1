"""Hyperparameters that pre-training and fine-tuning share: network, optimizer, devices.

Both configurations inherit these classes; `training.optimization` and `training.distribution` read them. Imports no
TensorFlow.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from electra_tf2.config.hparams import free_hparam, hparam, model_hparam
from electra_tf2.model.architecture import MODEL_SIZES, Architecture, make_architecture

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class NetworkHparams:
    """Main network and vocabulary, and whether the original's bugs are reproduced."""

    model_size: str = model_hparam("small", "size (ELECTRA, Table 6)", choices=tuple(MODEL_SIZES), heading="Model")
    model_hparam_overrides: dict[str, Any] = model_hparam(
        {}, "sizes that differ from model_size's; each is also a flag of its own", entries=Architecture
    )
    embedding_size: int | None = model_hparam(None, "embeddings' width; null: small 128, else hidden size", at_least=1)
    vocab_size: int = model_hparam(30522, "tokens in the vocabulary", at_least=6)
    do_lower_case: bool = model_hparam(True, "whether the vocabulary is uncased")
    do_strip_accents: bool | None = model_hparam(None, "whether text loses its accents; null: if it is lower-cased")
    compat: str = hparam(
        "none",
        "reproduce the original's bugs: none, or original, all of them (docs/differences.md)",
        choices=("none", "original"),
    )

    @classmethod
    def extended(cls, hparams: Mapping[str, Any]) -> type:
        """The class with further hparams that these ones ask for, as `paper` does; by default the class itself."""
        return cls

    @property
    def architecture(self) -> Architecture:
        """Sizes of the main network; heads and feed-forward follow the width unless overridden."""
        return make_architecture(self.model_size, self.model_hparam_overrides, self.vocab_size, self.embedding_size)

    @property
    def resolved_embedding_size(self) -> int:
        """embedding_size, or its default by the model's size."""
        if self.embedding_size:
            return self.embedding_size
        if self.model_size == "small":
            return 128
        return self.architecture.hidden_size

    def to_json(self) -> str:
        """Writes the resolved configuration; `from_dict(json.loads(...))` gives it back."""
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


@dataclasses.dataclass(frozen=True)
class OptimizerHparams:
    """Optimizer and accumulation of gradients; learning rates stand in the two configurations."""

    optimizer: str = hparam(
        "adamw",
        "what updates the kernels of encoder layers: adamw, or muon: their momentum, made orthogonal (Jordan et al. "
        "2024); AdamW updates everything else",
        choices=("adamw", "muon"),
        heading="Optimizer",
    )
    weight_decay_rate: float = hparam(0.01, "decoupled weight decay of kernels and embeddings", at_least=0)
    adam_beta1: float = hparam(0.9, "Adam's decay of the mean", at_least=0, below=1)
    adam_beta2: float = hparam(0.999, "Adam's decay of the variance", at_least=0, below=1)
    adam_epsilon: float = hparam(1e-6, "Adam's epsilon, outside the root", above=0)
    adam_bias_correction: bool = hparam(False, "correct the bias of Adam's means, as published; the original does not")
    muon_learning_rate_factor: float = hparam(
        1.0, "factor of the learning rate where muon updates; its updates are as large as AdamW's", above=0
    )
    muon_momentum: float = hparam(0.95, "muon's decay of the momentum (Nesterov's)", at_least=0, below=1)
    muon_ns_steps: int = hparam(5, "steps of Newton-Schulz's iteration, which make the momentum orthogonal", at_least=1)
    muon_precision: str = hparam(
        "bfloat16",
        "type of the matrix products of muon's iteration; float32 where the processor has none of bfloat16",
        choices=("bfloat16", "float32"),
    )
    ema_decay: float = hparam(
        0.0,
        "decay of a moving average of all weights, which evaluation, fine-tuning and conversion take; 0: none",
        at_least=0,
        below=1,
    )
    clip_norm: float = hparam(1.0, "norm to which all gradients together are clipped; 0: none", at_least=0)
    gradient_accumulation_steps: int = free_hparam(1, "number of micro-batches that a step is split into", at_least=1)

    def batch_problems(self, train_batch_size: int) -> list[str]:
        """Lists why a batch cannot be split into micro-batches."""
        parts = self.gradient_accumulation_steps
        if train_batch_size % parts == 0:
            return []
        return [f"train_batch_size {train_batch_size} is not divisible by gradient_accumulation_steps {parts}"]


@dataclasses.dataclass(frozen=True)
class DeviceHparams:
    """Devices and precision."""

    precision: str = hparam(
        "float32", "type of activations and matrix products", choices=PRECISIONS, heading="Numerics and devices"
    )
    recompute: str = free_hparam(
        "none",
        "what is computed again for the gradient, to save memory: none; selective: what is cheap, above all attention "
        "between pairs of positions (on GPUs and TPUs always so from 512 tokens on); layers: whole encoder layers, of "
        "which only the inputs are kept",
        choices=("none", "selective", "layers"),
    )
    jit_compile: str = free_hparam(
        "auto", "whether the whole step is compiled with XLA; auto: on GPUs and TPUs", choices=("auto", "true", "false")
    )
    strategy: str = free_hparam(
        "auto",
        "tf.distribute strategy; auto: tpu with use_tpu, mirrored with several GPUs, else one_device",
        choices=("auto", "one_device", "mirrored", "multi_worker", "tpu"),
    )
    num_gpus: int | None = free_hparam(None, "number of GPUs to use; null: all that are visible", at_least=0)
    use_tpu: bool = free_hparam(False, "train on a TPU")
    tpu_name: str | None = free_hparam(None, "name or address of the TPU", place="other")
    tpu_zone: str | None = free_hparam(None, "zone of the TPU in Google's cloud", place="other")
    gcp_project: str | None = free_hparam(None, "project of the TPU in Google's cloud", place="other")
    tpu_job_name: str | None = free_hparam(None, "job name of the TPU workers", place="other")
    num_tpu_cores: int = free_hparam(1, "TPU cores that are expected; checked against what is found", at_least=1)

    def device_problems(self) -> list[str]:
        """Lists what is wrong with the combination."""
        problems = []
        if (self.strategy == "tpu" or self.use_tpu) and self.precision == "float16":
            problems.append("precision float16 is not for TPUs: use bfloat16")
        if self.use_tpu and self.strategy not in ("auto", "tpu"):
            problems.append(f"use_tpu is true, but strategy is {self.strategy}: use one of auto, tpu")
        return problems
