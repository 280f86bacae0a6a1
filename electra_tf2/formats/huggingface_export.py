"""Writes Hugging Face directories, for `transformers`. `huggingface` reads them.

The class that a model is written as:

- ELECTRA's main network: ElectraForPreTraining
- ELECTRA's generator: ElectraForMaskedLM
- a BERT run: BertForMaskedLM, or ElectraForMaskedLM if its embeddings are narrower than its layers
- a fine-tuned model: the class whose head computes the same function
- a network like ModernBERT's: ModernBERT's classes of the same names

If no class has the head, the encoder is written without it, and the parts that are left out are listed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats import ANY_NETWORK_HINT
from electra_tf2.formats.huggingface_config import config_json, is_like_modernbert
from electra_tf2.formats.huggingface_field import (
    NUMBER,
    as_pipelines_group,
    field_of_pretraining,
    field_of_task,
)
from electra_tf2.formats.huggingface_tokenizer import write_tokenizer_of
from electra_tf2.formats.stored_model import (
    DETECTOR,
    MASKED_LM,
    StoredModel,
)
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError

if TYPE_CHECKING:
    import numpy as np


class Exported(NamedTuple):
    """A model as a class of transformers.

    config: content of config.json. tensors: arrays under Hugging Face's names. left_out: our variables or heads that
    the class lacks.
    """

    config: dict[str, Any]
    tensors: "dict[str, np.ndarray]"
    left_out: list[str]

    @property
    def class_name(self) -> str:
        return self.config["architectures"][0]

    @property
    def family(self) -> str:
        """The name of its networks: Electra, Bert or ModernBert."""
        return self.class_name.removesuffix("Model").partition("For")[0]

    @property
    def is_encoder_alone(self) -> bool:
        return self.class_name.endswith("Model")


def to_huggingface(model: StoredModel, part: str = "main") -> Exported:
    """Converts a part of a model to a class of transformers.

    Args:
      model: from `inference.model_config.with_config`.
      part: "main", the main network with its head; "generator", ELECTRA's generator; or "body", the encoder alone.

    Raises:
      UserError: Hugging Face's classes have no such network; names what they lack.
    """
    from electra_tf2.formats import huggingface_names as names

    if part == "generator":
        model, a = _generator_of(model)
        scope = "generator"
    else:
        a = model.architecture
        scope = "electra"
    modern = is_like_modernbert(a)
    family = _family(model, part, a)
    head = _head(model, part, a, family)
    model_type = head.family.lower()
    if head.is_encoder_alone:
        prefix = ""
    else:
        prefix = "model." if modern else f"{model_type}."
    config = config_json(a, model_type, head.class_name)
    tensors = names.to_theirs(names.encoder(a, prefix, modern, scope), model.weights) | head.tensors
    if modern:
        special = model.tokenizer().special
        config |= {"cls_token_id": special.cls, "bos_token_id": special.cls}
        config |= {"sep_token_id": special.sep, "eos_token_id": special.sep}
        tensors[f"{prefix}{names.WORDS}"] = names.multiplied_out(model.weights, scope)
        bias = tensors.get("head.dense.bias")
        if bias is not None:
            config["classifier_bias"] = bool(bias.any())
            if not bias.any():  # transformers' default is a head without this bias
                del tensors["head.dense.bias"]
    elif not a.type_vocab_size:
        tensors[f"{prefix}embeddings.token_type_embeddings.weight"] = names.no_segments(a)
    return Exported(config | head.config, tensors, head.left_out)


def _family(model: StoredModel, part: str, a: Architecture) -> str:
    """First part of the names of the classes for this network."""
    if is_like_modernbert(a):
        return "ModernBert"
    came_as_bert = part != "generator" and model.class_name.startswith("Bert")
    if came_as_bert and a.embedding_size == a.hidden_size:
        return "Bert"
    return "Electra"


def _generator_of(model: StoredModel) -> tuple[StoredModel, Architecture]:
    """The model with a copy of shared embedding tables for its generator, and the generator's sizes."""
    if not model.has_generator:
        raise UserError("this model has no generator of its own")
    if any(name.startswith("generator_ltr/") for name in model.weights):
        raise UserError("Hugging Face has no class for a generator of two towers")
    assert model.generator_sizes is not None, "set by with_config"
    weights = dict(model.weights)
    for name, value in model.weights.items():
        if name.startswith("electra/embeddings/"):  # the generator shares a table if it has no such table of its own
            weights.setdefault(name.replace("electra/", "generator/", 1), value)
    return model.changed(weights=weights), model.generator_sizes


def _head(model: StoredModel, part: str, a: Architecture, family: str) -> Exported:
    """The class with a part's head, or else the encoder's. Its config and tensors are those of the head alone."""
    kept = {"electra"}
    if part == "generator":
        kept |= {"generator", MASKED_LM}
    left_out = sorted({name.split("/")[0] for name in model.weights} - kept)
    alone = Exported({"architectures": [f"{family}Model"]}, {}, left_out)
    has_other_heads = family == "ModernBert" and a.head_style != "modernbert"  # than ModernBERT's classes
    if part == "body" or has_other_heads:
        return alone
    if part == "main" and model.is_fine_tuned:
        exported = _task_head(model, a, alone)
        if exported.is_encoder_alone:
            return exported
        [task] = model.hparams["task_names"]
        return exported._replace(config=exported.config | field_of_task(model, task))
    return _pretraining_head(model, part, a, alone)


def _pretraining_head(model: StoredModel, part: str, a: Architecture, alone: Exported) -> Exported:
    """The class of a detector of replaced tokens or of a masked language model, or else the encoder alone."""
    from electra_tf2.formats import huggingface_names as names

    weights = model.weights
    is_detector = part == "main" and f"{DETECTOR}/dense/kernel" in weights
    scope = DETECTOR if is_detector else MASKED_LM
    if f"{scope}/dense/kernel" not in weights:
        return alone
    if part == "main":
        is_coco_lm = "clm_predictions/output_bias" in weights or "copy_predictions/dense/kernel" in weights
        is_generators_head = not is_detector and model.has_generator
        if is_coco_lm or is_generators_head:
            return alone
    family = alone.class_name.removesuffix("Model")
    modern = family == "ModernBert"
    labels = {}
    if is_detector and modern:
        class_name = "ModernBertForTokenClassification"
        labels = _labels(names.DETECTION_LABELS)
    elif is_detector:
        class_name = "ElectraForPreTraining"
    elif modern:
        class_name = "ModernBertForMaskedLM"
    else:
        class_name = _masked_lm_class(model, a, family)
    tensors = names.to_theirs(names.head(class_name, a), weights)
    left_out = [name for name in alone.left_out if name != scope]
    return Exported({"architectures": [class_name]} | labels | field_of_pretraining(model), tensors, left_out)


def _masked_lm_class(model: StoredModel, a: Architecture, family: str) -> str:
    """BERT's class for a masked language model if it can hold it, or else ELECTRA's."""
    came_as_electra = model.class_name.startswith("Electra") and a.hidden_act == "gelu"
    if a.embedding_size == a.hidden_size and not model.has_generator and not came_as_electra:
        return "BertForMaskedLM"
    if a.hidden_act != "gelu":  # the head of ElectraForMaskedLM always has gelu
        raise UserError(
            f"Hugging Face's ElectraForMaskedLM has no head with hidden_act {a.hidden_act!r}: {ANY_NETWORK_HINT}"
        )
    return f"{family}ForMaskedLM"


def _task_head(model: StoredModel, a: Architecture, alone: Exported) -> Exported:
    """The class that computes the same logits as the one task's head, or else the encoder alone."""
    from electra_tf2.formats import huggingface_names as names

    tasks = model.hparams["task_names"]
    if len(tasks) != 1:
        raise UserError(
            f"a Hugging Face directory holds one task, this model has {', '.join(tasks)}: --format onnx and "
            "saved_model hold all of them"
        )
    task = tasks[0]
    scope = f"task_specific/{task}"
    variables = {name for name in model.weights if name.startswith(f"{scope}/")}
    if f"{scope}/end_hidden/kernel" in variables:
        return alone._replace(left_out=[_JOINT_ANSWERS])
    family = alone.class_name.removesuffix("Model")
    if family == "ModernBert" and f"{scope}/head/dense/kernel" not in variables:
        return alone
    task_class = model.task_classes[task]  # "" for one whose head no class has
    if f"{scope}/start/kernel" in variables:
        class_name = f"{family}ForQuestionAnswering"
        left_out = sorted(name for name in variables if name.startswith(f"{scope}/answerable"))
        tensors = names.to_theirs(names.head(class_name, a, scope), model.weights)
        return Exported({"architectures": [class_name]}, tensors, left_out)
    if not task_class or f"{scope}/dense/kernel" not in variables:
        return alone
    state = model.state_of(task)
    labels = state.get("labels")
    names_of_labels = NUMBER if labels is None else as_pipelines_group(state, labels)
    config: dict[str, Any] = _labels(names_of_labels)
    config["classifier_dropout"] = model.resolved_hparams["classifier_dropout"]
    if task_class == "TokenClassification":
        class_name = f"{family}ForTokenClassification"
        tensors = names.to_theirs(names.head(class_name, a, scope), model.weights)
        return Exported(config | {"architectures": [class_name]}, tensors, [])
    if labels is None:
        config |= {"problem_type": "regression", "num_labels": 1}
    else:
        config["problem_type"] = "single_label_classification"
    return _classifier(model, a, scope, config, alone)


def _classifier(model: StoredModel, a: Architecture, scope: str, config: dict[str, Any], alone: Exported) -> Exported:
    """The class of a classifier or regression, or else the encoder alone.

    Args:
      scope: first part of the names of the head's variables.
      config: fields of config.json.
    """
    from electra_tf2.formats import huggingface_names as names

    hparams = model.resolved_hparams
    weights = model.weights
    if alone.class_name == "ModernBertModel":
        family = "ModernBert"
        config["classifier_pooling"] = hparams["classifier_pooling"]
    elif hparams["classifier_pooling"] == "mean":
        return alone._replace(left_out=[_CLASSES_OF_MEAN])
    elif hparams["classifier"] == "linear":
        kernel = weights[f"{scope}/dense/kernel"]
        tensors = names.linear_as_two_layers(kernel, weights[f"{scope}/dense/bias"])
        if tensors is None:
            hidden, classes = kernel.shape
            what = f"the linear head of {classes} classes, of which ELECTRA's class can hold {hidden // 2} at most"
            return alone._replace(left_out=[what])
        return Exported(config | {"architectures": ["ElectraForSequenceClassification"]}, tensors, [])
    elif hparams["classifier"] == "tanh":
        family = "Bert"  # whose pooler is this layer
        if a.embedding_size != a.hidden_size:
            what = "the head of the task, which has a tanh layer before the classes, where ELECTRA's class has gelu"
            return alone._replace(left_out=[what])
    else:
        family = "Electra"
    class_name = f"{family}ForSequenceClassification"
    tensors = names.to_theirs(names.head(class_name, a, scope), weights)
    return Exported(config | {"architectures": [class_name]}, tensors, [])


_CLASSES_OF_MEAN = "the head of the task, whose classes come from the mean of all states, not from [CLS]"
_JOINT_ANSWERS = (
    "the head that finds answers: it predicts the end of an answer given its start (joint_prediction), for which "
    "transformers has no class; train with --no-joint-prediction, and it leaves whole"
)


def _labels(labels: Sequence[str]) -> dict[str, Any]:
    """Fields of config.json that name a classifier's classes. Two classes may have one name."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    label2id: dict[str, int] = {}
    for index, label in enumerate(labels):
        label2id.setdefault(label, index)
    return {"id2label": id2label, "label2id": label2id}


def write_directory(
    folder: str | Path, model: StoredModel, exported: Exported, dtype: str = "float32", card: str = ""
) -> None:
    """Writes a directory. config.json comes last: a directory that has one is complete.

    Args:
      model: from `inference.model_config.with_config`.
      card: content of README.md; "": none is written.
    """
    from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, write_tensors

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, exported.tensors, dtype)
    (folder / INDEX_NAME).unlink(missing_ok=True)  # left by an earlier model in several files
    longest = model.architecture.max_position_embeddings
    if model.is_fine_tuned:
        longest = model.resolved_hparams["max_seq_length"]  # of which its scores are
    write_tokenizer_of(model, folder, longest)
    if card:
        write_atomically(folder / "README.md", card)
    config = exported.config | {"torch_dtype": dtype, "pad_token_id": model.tokenizer().special.pad}
    write_json(folder / "config.json", config)
