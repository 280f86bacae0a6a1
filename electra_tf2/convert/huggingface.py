"""Writing Hugging Face directories that `transformers` loads: weights, configuration, tokenizer, model card.

Which class a model becomes follows from its parts: ELECTRA's main network is an ElectraForPreTraining, its generator an
ElectraForMaskedLM, a BERT run a BertForMaskedLM (an ElectraForMaskedLM where its embeddings are narrower than its
layers), a fine-tuned model the class whose head computes the same function. Where there is none, the encoder alone is
written and what was left out is said.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import BertWordPieceTokenizer
from tokenizers.processors import TemplateProcessing

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert.own_folder import write_vocabulary
from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD
from electra_tf2.corpus.vocabulary import CLS, SEP, SPECIAL_TOKENS, SpecialIds
from electra_tf2.exports.cards import card, pipeline_of, sizes_of, transformers_usage
from electra_tf2.exports.self_check import Options, Written, check_inputs, largest_at_tokens, outputs
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats import ELSEWHERE
from electra_tf2.formats import huggingface as names
from electra_tf2.formats.huggingface_config import Casing, config_json, is_like_modernbert
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import DETECTOR, MASKED_LM, StoredModel
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, write_tensors
from electra_tf2.inference.configured import config_of, generator_architecture
from electra_tf2.inference.network import STATES
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError


class Exported(NamedTuple):
    """A model in Hugging Face's terms.

    config: content of config.json. tensors: arrays by their names. left_out: our variables or heads that have no place.
    """

    config: dict[str, Any]
    tensors: dict[str, np.ndarray]
    left_out: list[str]

    @property
    def class_name(self) -> str:
        return self.config["architectures"][0]


def convert(folder: Path, model: StoredModel, options: Options) -> Written:
    """Writes a directory of a part of a model; the difference is infinite where it is read back without its head."""
    exported, part = to_huggingface(model, options.part), options.part
    name = exported.class_name
    write_huggingface(folder, model, exported, options.dtype)
    left_out = [f"\n  left out, as {name} has no such part: {what}" for what in exported.left_out]
    what = f"{folder}: {name} with tokenizer and model card{''.join(left_out)}"
    theirs = outputs(read_model(folder))
    if name.endswith("Model") != (theirs.keys() == {STATES}):
        return Written(what, float("inf"), name)
    ours = outputs(model, part if len(theirs) > 1 or part == "generator" else "body")
    ours = {output: ours[output] for output in theirs}
    return Written(what, largest_at_tokens(ours, theirs, check_inputs(model)), name)


def to_huggingface(model: StoredModel, part: str = "main") -> Exported:
    """Puts a part of a model in Hugging Face's terms.

    Args:
      part: "main", the main network with its head; "generator", ELECTRA's generator; or "body", the encoder alone.

    Raises:
      UserError: Hugging Face's classes have no such network; names what they lack.
    """
    weights, a, scope = model.weights, model.architecture, "electra"
    if part == "generator":
        if not model.has_generator:
            raise UserError("this model has no generator of its own")
        if any(name.startswith("generator_ltr/") for name in weights):
            raise UserError("Hugging Face has no class for a generator of two towers")
        a, scope = generator_architecture(model), "generator"
        shared = {name: value for name, value in weights.items() if name.startswith("electra/embeddings/")}
        weights = {name.replace("electra/", "generator/", 1): value for name, value in shared.items()} | {**weights}
    modern = is_like_modernbert(a)
    was_bert = model.class_name.startswith("Bert") and part != "generator" and a.embedding_size == a.hidden_size
    head = _head(model, part, a, "ModernBert" if modern else "Bert" if was_bert else "Electra")
    kind = head.class_name.partition("Model" if head.class_name.endswith("Model") else "For")[0].lower()
    prefix = "" if head.class_name.endswith("Model") else "model." if modern else f"{kind}."
    config = config_json(a, kind, head.class_name)
    tensors = names.to_theirs(names.encoder(a, prefix, modern, scope), weights) | head.tensors
    if modern:
        special = model.tokenizer().special
        config |= dict.fromkeys(("cls_token_id", "bos_token_id"), special.cls)
        config |= dict.fromkeys(("sep_token_id", "eos_token_id"), special.sep)
        table = weights[f"{scope}/embeddings/word_embeddings"]
        if a.embedding_size != a.hidden_size:
            table = (table.astype(np.float64) @ weights[f"{scope}/embeddings_project/kernel"]).astype(np.float32)
        tensors[f"{prefix}{names.WORDS}"] = table
        if "head.dense.bias" in tensors:
            config["classifier_bias"] = bool(tensors["head.dense.bias"].any())
            if not config["classifier_bias"]:  # as their configurations have it
                del tensors["head.dense.bias"]
    elif not a.type_vocab_size:
        tensors[f"{prefix}embeddings.token_type_embeddings.weight"] = np.zeros([2, a.embedding_size], np.float32)
    return Exported(config | head.config, tensors, head.left_out)


def write_huggingface(folder: str | Path, model: StoredModel, exported: Exported, dtype: str = "float32") -> None:
    """Writes the directory; config.json last, so that one which has it is complete."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, exported.tensors, dtype)
    (folder / INDEX_NAME).unlink(missing_ok=True)  # of several files that were here before
    write_tokenizer_of(model, folder, model.architecture.max_position_embeddings)
    write_atomically(folder / "README.md", _model_card(model, exported))
    config = exported.config | {"torch_dtype": dtype, "pad_token_id": model.tokenizer().special.pad}
    write_json(folder / "config.json", config)


def write_tokenizer_of(model: StoredModel, folder: Path, max_length: int) -> None:
    """Writes a model's tokenizer for transformers; one that came as a tokenizer.json as it was."""
    if not model.tokenizer_file:
        segments = min(2, model.architecture.type_vocab_size or 2)
        write_tokenizer(folder, model.tokens, model.casing, max_length, segments)
        return
    write_vocabulary(folder, model)
    special = model.tokenizer().special._asdict()
    settings: dict[str, Any] = {f"{name}_token": model.tokens[number] for name, number in special.items()}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length}
    write_json(folder / "tokenizer_config.json", settings)


def write_tokenizer(folder: Path, tokens: list[str], casing: Casing, max_length: int, segments: int = 2) -> None:
    """Writes vocab.txt, tokenizer.json and tokenizer_config.json, for transformers' fast and slow tokenizers.

    Args:
      segments: number of segments that the network tells apart; with 1, both texts of a pair are of the first.
    """
    strip_accents = casing.strip_accents and casing.do_lower_case  # theirs strips them from cased text, too
    numbers = {token: number for number, token in enumerate(tokens)}
    tokenizer = BertWordPieceTokenizer(numbers, strip_accents=strip_accents, lowercase=casing.do_lower_case)
    tokenizer.model.max_input_chars_per_word = MAX_CHARS_PER_WORD
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:{segments - 1} {SEP}:{segments - 1}",
        special_tokens=[(token, tokens.index(token)) for token in (CLS, SEP)],
    )
    tokenizer.enable_truncation(max_length)  # for programs that read this file alone; transformers sets its own
    write_atomically(folder / "vocab.txt", "".join(f"{token}\n" for token in tokens))
    write_atomically(folder / "tokenizer.json", tokenizer.to_str(pretty=True) + "\n")
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": casing.do_lower_case,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
    }
    settings |= {f"{name}_token": token for name, token in zip(SpecialIds._fields, SPECIAL_TOKENS, strict=True)}
    write_json(folder / "tokenizer_config.json", settings)


def _head(model: StoredModel, part: str, a: Architecture, family: str) -> Exported:
    """A class with the head of a part of a model, or else of the encoder alone, and what is left out."""
    weights, config, modern = model.weights, config_of(model), family == "ModernBert"
    kept = {"electra", *(("generator", MASKED_LM) if part == "generator" else ())}
    left_out = sorted({name.split("/")[0] for name in weights} - kept)
    alone = Exported({"architectures": [f"{family}Model"]}, {}, left_out)
    if part == "body" or (modern and a.head_style != "modernbert"):
        return alone
    if part == "main" and isinstance(config, FinetuningConfig):
        return _task_head(model, config, alone)
    detects = part == "main" and f"{DETECTOR}/dense/kernel" in weights
    scope = DETECTOR if detects else MASKED_LM
    is_coco = part == "main" and {"clm_predictions/output_bias", "copy_predictions/dense/kernel"} & weights.keys()
    of_generator = part == "main" and not detects and model.has_generator
    if is_coco or of_generator or f"{scope}/dense/kernel" not in weights:
        return alone
    if detects:
        class_name = "ModernBertForTokenClassification" if modern else "ElectraForPreTraining"
    else:
        was_electra = model.class_name.startswith("Electra") and a.hidden_act == "gelu"
        if not modern and a.embedding_size == a.hidden_size and not model.has_generator and not was_electra:
            family = "Bert"
        elif not modern and a.hidden_act != "gelu":
            # whose head has this activation whatever hidden_act says
            act = a.hidden_act
            raise UserError(f"Hugging Face's ElectraForMaskedLM has no head with hidden_act {act!r}: {ELSEWHERE}")
        class_name = f"{family}ForMaskedLM"
    tensors = names.to_theirs(names.head(class_name, a), weights)
    said = {"architectures": [class_name]} | (_labels(names.DETECTION_LABELS) if detects and modern else {})
    return Exported(said, tensors, [name for name in left_out if name != scope])


def _task_head(model: StoredModel, config: FinetuningConfig, alone: Exported) -> Exported:
    """The class that computes the same logits as the one task's head, or else the encoder alone."""
    if len(config.task_names) != 1:
        raise UserError(
            f"a Hugging Face directory holds one task, this model has {', '.join(config.task_names)}: --format onnx "
            "and saved_model hold all of them"
        )
    (task,) = config.task_names
    weights, a, scope, task_kind = model.weights, model.architecture, f"task_specific/{task}", config.kind_of(task)
    family, left_out = alone.class_name.removesuffix("Model"), list[str]()
    modern, parts = family == "ModernBert", {name for name in weights if name.startswith(f"{scope}/")}
    judges_candidates = task_kind == "choice"  # which no class does
    if f"{scope}/end_hidden/kernel" in parts:
        return alone._replace(left_out=[f"{scope}: the end of an answer given its start (joint_prediction)"])
    if judges_candidates or not {f"{scope}/start/kernel", f"{scope}/dense/kernel"} & parts:
        return alone
    if modern and f"{scope}/head/dense/kernel" not in parts:
        return alone
    said, labels = dict[str, Any](), (model.task_states or {}).get(task, {}).get("labels")
    if f"{scope}/start/kernel" in parts:
        kind, left_out = "QuestionAnswering", sorted(name for name in parts if name.startswith(f"{scope}/answerable"))
    else:
        said |= _labels(["value"] if labels is None else list(map(str, labels)))
        said |= {"classifier_dropout": config.classifier_dropout}
        kind = "TokenClassification" if task_kind == "tagging" else "SequenceClassification"
    if kind == "SequenceClassification":
        said["problem_type"] = "regression" if labels is None else "single_label_classification"
        said |= {"num_labels": 1} if labels is None else {}
        if modern:
            said["classifier_pooling"] = config.classifier_pooling
        elif config.classifier_pooling == "mean":
            return alone._replace(left_out=[f"{scope}: classes from the mean of all states, not from [CLS]"])
        elif config.classifier == "linear":
            return _linear_classifier(weights[f"{scope}/dense/kernel"], weights[f"{scope}/dense/bias"], said, alone)
        else:
            family = "Bert" if config.classifier == "tanh" else "Electra"  # Bert's pooler is this layer
            if family == "Bert" and a.embedding_size != a.hidden_size:
                what = f"{scope}: a tanh layer before the classes, where ELECTRA's class has gelu"
                return alone._replace(left_out=[what])
    said["architectures"] = [f"{family}For{kind}"]
    return Exported(said, names.to_theirs(names.head(f"{family}For{kind}", a, scope), weights), left_out)


def _linear_classifier(kernel: np.ndarray, bias: np.ndarray, config: dict[str, Any], alone: Exported) -> Exported:
    """A linear layer on [CLS] as ELECTRA's class, which has a dense layer with gelu before its own.

    gelu(z) - gelu(-z) = z for every z. So the first layer computes the logits and their negatives, and the second one
    subtracts the two; this needs twice as many units as classes.
    """
    hidden, classes = kernel.shape
    spare = hidden - 2 * classes
    if spare < 0:
        what = f"a linear head of {classes} classes, which ELECTRA's class can hold up to {hidden // 2} of"
        return alone._replace(left_out=[what])
    second = np.pad(np.concatenate([np.eye(classes), -np.eye(classes)]), [(0, spare), (0, 0)]).astype(np.float32)
    tensors = {
        "classifier.dense.weight": np.pad(np.concatenate([kernel, -kernel], 1), [(0, 0), (0, spare)]).T,
        "classifier.dense.bias": np.pad(np.concatenate([bias, -bias]), [(0, spare)]),
        "classifier.out_proj.weight": second.T,
        "classifier.out_proj.bias": np.zeros([classes], np.float32),
    }
    return Exported(config | {"architectures": ["ElectraForSequenceClassification"]}, tensors, [])


def _labels(named: Sequence[str]) -> dict[str, Any]:
    numbers = {label: number for number, label in enumerate(named)}
    return {"id2label": {str(number): label for number, label in enumerate(named)}, "label2id": numbers}


def _model_card(model: StoredModel, exported: Exported) -> str:
    name = exported.class_name
    header = ["library_name: transformers", "tags:", "- electra"]
    if pipeline_of(name):
        header.append(f"pipeline_tag: {pipeline_of(name)}")
    about = [f"Class: `{name}`. Converted from {model.origin}.", sizes_of(model)]
    if exported.left_out:
        left_out = "\n".join(f"- {what}" for what in exported.left_out)
        about.append(f"Not in this directory, as the class has no such part:\n\n{left_out}")
    if exported.config.get("problem_type") == "regression":
        about.append("The number that it gives is on the scale from 0 to 1 that was learned.")
    return card(model, header, about, transformers_usage(name))
