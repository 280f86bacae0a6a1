"""Models as one thing, whatever their files: configuration, weights under our names, vocabulary.

    read_model(path) -> StoredModel    of a run, a self-contained folder, a Hugging Face directory, a TF1 checkpoint of
                                       the original or a checkpoint of tf-models-official's encoder
    write_folder(folder, model)        a self-contained folder (formats.folders)

and what conversions make of a model: one with another's generator, without its generator, without shared layers; and
how it makes one vector of a text (`pooling_of`).
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.file_tokenizer import FileTokenizer
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.corpus.vocabulary import TOKENIZER_FILE, is_wordpiece, load_tokens, load_vocab
from electra_tf2.formats import tf_models
from electra_tf2.formats.checkpoints import CheckpointVariables, TensorFlowCheckpoint, best_or_newest, find_checkpoint
from electra_tf2.formats.folders import VOCABULARY, is_uncased, read_config, vocabulary_of
from electra_tf2.formats.huggingface import HuggingFaceWeights
from electra_tf2.formats.huggingface_config import (
    Casing,
    casing_of,
    class_of,
    is_huggingface,
    labels_of,
    network_of,
    tokenizer_in,
    tokens_in,
)
from electra_tf2.formats.original_config import hparams_beside, hparams_of
from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.files import write_atomically, write_json
from electra_tf2.util.hparams import places
from electra_tf2.util.papers import without_retired
from electra_tf2.util.reading import read_json, read_text, typed
from electra_tf2.util.recipes import read_recipe

_CLASS_FILE = "huggingface.json"  # of a folder of ours that was made of a directory of transformers


class Given(NamedTuple):
    """Facts about a model that its files lack and a user gives.

    vocab_file, num_attention_heads, do_lower_case: of a checkpoint without a configuration. pairs: True if a classifier
    of Hugging Face reads pairs of texts.
    """

    vocab_file: str | None = None
    num_attention_heads: int | None = None
    do_lower_case: bool | None = None
    pairs: bool = False


NOTHING = Given()


class StoredModel(NamedTuple):
    """A model that was read from files.

    config: configuration of the run, or the one that a run of this network would have.
    weights: float32 arrays by our names.
    tokens: the vocabulary, in the order of ids.
    casing: how the tokenizer normalises text.
    task_states: what the outputs of a fine-tuned model mean, by task (finetune.tasks.task.Task.state); else None.
    origin: a description of where it came from.
    left_out: names of tensors that have no place here.
    scores: what its run wrote of its scores.
    is_run: True if config is a run's, and so says how the model was trained.
    generator_sizes: sizes of a generator that came from elsewhere (`with_generator`).
    tokenizer_file: the tokenizer.json of a tokenizer that is not WordPiece's; "": tokens and casing are all of it.
    class_name: the class of transformers that it came as, and goes out as again where the class can be it; "": none.
    """

    config: PretrainingConfig | FinetuningConfig
    weights: dict[str, np.ndarray]
    tokens: list[str]
    casing: Casing
    task_states: dict[str, Any] | None
    origin: str
    left_out: list[str]
    scores: dict[str, Any]
    is_run: bool
    generator_sizes: Architecture | None = None
    tokenizer_file: str = ""
    class_name: str = ""

    @property
    def architecture(self) -> Architecture:
        return self.config.architecture

    def tokenizer(self) -> WordpieceTokenizer:
        """Makes its tokenizer."""
        return (
            FileTokenizer(self.tokenizer_file) if self.tokenizer_file else WordpieceTokenizer(self.tokens, *self.casing)
        )

    @property
    def has_generator(self) -> bool:
        """True if there is a generator beside the main network."""
        return any(name.startswith(("generator/encoder/", "generator_ltr/encoder/")) for name in self.weights)

    @property
    def generator_architecture(self) -> Architecture:
        """Sizes of the generator's network; those of the main network where it has none of its own."""
        if isinstance(self.config, FinetuningConfig):
            return self.config.architecture
        return self.generator_sizes or self.config.generator_architecture


def read_model(path: str, given: Given = NOTHING) -> StoredModel:
    """Reads the model at a path.

    Raises:
      UserError: nothing is there, or nothing that can be read; names what is missing.
    """
    config = read_config(path)
    if config is None:
        return _from_checkpoint(path, given)
    if is_huggingface(config):
        return _from_huggingface(path, config, given)
    return _from_ours(path, config, given)


def check_given(path: str, given: Given) -> None:
    """Raises UserError if something is given that the model's own files say."""
    config = read_config(path)
    said = ["num_attention_heads", "do_lower_case"] if config else []
    if config and is_huggingface(config):
        said.append("vocab_file")
    idle = [name for name in said if getattr(given, name) is not None]
    if idle:
        raise UserError(f"{' and '.join(idle)}: given for a checkpoint that does not say it, but {path} does")
    if given.pairs and not (config and is_huggingface(config)):
        raise UserError(f"pairs: given for a classifier of Hugging Face, but {path} is none")


def with_generator(model: StoredModel, generator: StoredModel) -> StoredModel:
    """Joins a discriminator and the masked language model of another directory, its generator.

    Raises:
      UserError: the other has no masked language model, or another vocabulary.
    """
    if "generator_predictions/output_bias" not in generator.weights:
        raise UserError(f"{generator.origin} has no masked language model, so it is no generator")
    if generator.tokens != model.tokens:
        raise UserError(f"{model.origin} and {generator.origin} have different vocabularies")
    own = any(name.startswith("generator/") for name in generator.weights)
    scope = "generator/" if own else "electra/"
    parts = {name: value for name, value in generator.weights.items() if name.startswith("generator_predictions/")}
    parts |= {f"generator/embeddings/{name.split('/', 2)[2]}": value
              for name, value in generator.weights.items() if name.startswith("electra/embeddings/")}  # fmt: skip
    parts |= {name.replace(scope, "generator/", 1): value
              for name, value in generator.weights.items() if name.startswith(scope)}  # fmt: skip
    sizes = generator.generator_architecture if own else generator.architecture
    return model._replace(weights=model.weights | parts, generator_sizes=sizes)


_OF_GENERATORS = ("generator", "cloze_predictions/")  # begin the names of their variables


def without_generator(model: StoredModel) -> StoredModel:
    """The main network with its heads: what fine-tuning starts from.

    Raises:
      UserError: the model has no generator beside its main network.
    """
    if not model.has_generator:
        raise UserError(f"{model.origin} has no generator that could be left out")
    weights = {name: value for name, value in model.weights.items() if not name.startswith(_OF_GENERATORS)}
    return model._replace(weights=weights)


def with_own_layers(model: StoredModel) -> StoredModel:
    """Writes shared weights out for each layer, for formats that have no shared layers: the same function."""
    if model.architecture.share_layers == "none":
        return model
    weights = written_out(model.weights, model.architecture, "electra")
    for scope in ("generator", "generator_ltr", "generator_rtl"):
        weights = written_out(weights, model.generator_architecture, scope)
    sizes = model.config.model_hparam_overrides | {"share_layers": "none"}
    generator = model.generator_sizes
    return model._replace(
        config=dataclasses.replace(model.config, model_hparam_overrides=sizes),
        weights=weights,
        generator_sizes=None if generator is None else dataclasses.replace(generator, share_layers="none"),
    )


def written_out(weights: Mapping[str, np.ndarray], architecture: Architecture, scope: str) -> dict[str, np.ndarray]:
    """Copies the weights that layers of an encoder share to every layer's own name."""
    start = f"{scope}/encoder/layer_"
    result = {name: value for name, value in weights.items() if not name.startswith(start)}
    for part, beginnings in (("attention", ("attention/",)), ("ffn", ("intermediate/", "output/"))):
        for layer, named in enumerate(architecture.shared_with(part)):
            for name, value in weights.items():
                within = name.removeprefix(f"{start}{named}/")
                if within != name and within.startswith(beginnings):
                    result[f"{start}{layer}/{within}"] = value
    return result


def write_folder(folder: str | Path, model: StoredModel, dtype: str = "float32") -> None:
    """Writes a self-contained folder; config.json last, so that a folder which has one is complete.

    Args:
      dtype: type of the stored weights, one of `tensor_file.DTYPES`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, model.weights, dtype)
    if model.scores:
        write_json(folder / "scores.json", model.scores)
    vocabulary, other = (TOKENIZER_FILE, VOCABULARY) if model.tokenizer_file else (VOCABULARY, TOKENIZER_FILE)
    if model.tokenizer_file:
        write_atomically(folder / vocabulary, read_text(model.tokenizer_file, "tokenizer"))
    else:
        write_atomically(folder / vocabulary, "".join(f"{token}\n" for token in model.tokens))
    if model.task_states is not None:
        write_json(folder / "tasks.json", model.task_states)
    if model.class_name:
        write_json(folder / _CLASS_FILE, {"class": model.class_name})
    absent = {"scores.json": not model.scores, "tasks.json": model.task_states is None, other: True}
    absent[_CLASS_FILE] = not model.class_name
    for name in filter(absent.get, absent):  # of a model that was here before
        (folder / name).unlink(missing_ok=True)
    elsewhere = places(type(model.config))
    config = {name: value for name, value in json.loads(model.config.to_json()).items() if name not in elsewhere}
    write_atomically(folder / "config.json", json.dumps(config | {"vocab_file": vocabulary}, indent=2) + "\n")


def _from_ours(path: str, saved: dict[str, Any], given: Given, checkpoint: str | None = None) -> StoredModel:
    """Reads a folder of ours; `checkpoint` is one of its checkpoints, None the newest or, fine-tuned, the best."""
    folder = Path(path)
    vocab_file = given.vocab_file or vocabulary_of(folder, saved)
    config_class: type[PretrainingConfig] | type[FinetuningConfig]
    config_class = FinetuningConfig if "task_names" in saved else PretrainingConfig
    hparams: type = config_class
    if config_class is PretrainingConfig:
        hparams = PretrainingConfig.extended(saved)  # a paper's, too: a teacher may be gone by now
    saved = without_retired(saved, {field.name for field in dataclasses.fields(hparams)})
    kept = {name: value for name, value in saved.items() if name not in places(hparams)}
    if config_class is FinetuningConfig:  # its own network, not that of a shipped model with the run's name
        kept["pretrained_model_dir"] = path
    config = config_class.from_dict(kept | {"vocab_file": vocab_file})
    states = None
    weights = checkpoint or str(folder)
    if isinstance(config, FinetuningConfig):
        states = read_json(folder / "tasks.json", "tasks") if (folder / "tasks.json").is_file() else None
        weights = checkpoint or best_or_newest(str(folder))
        if states is not None and not all(isinstance(state, dict) for state in states.values()):
            raise UserError(f"{folder / 'tasks.json'} must hold an object for each task, got {shown(states)}")
    casing = Casing(config.do_lower_case, config.do_strip_accents)
    tokens = load_tokens(vocab_file)
    if len(tokens) != config.vocab_size:
        raise UserError(
            f"{path} was trained with {config.vocab_size} tokens, but {vocab_file} has {len(tokens)}: "
            "name its vocabulary with --vocab-file"
        )
    arrays = CheckpointVariables(weights).weights()
    file = folder / _CLASS_FILE
    name = read_json(file, "class of transformers").get("class", "") if file.is_file() else ""
    return StoredModel(config, arrays, tokens, casing, states, f"a model in {folder.name}", [], _scores(folder), True,
                       tokenizer_file=_file_of(vocab_file), class_name=typed(name, str, f"{file}: class"))  # fmt: skip


def _from_huggingface(path: str, config: dict[str, Any], given: Given) -> StoredModel:
    folder = Path(path)
    source = HuggingFaceWeights(folder)
    weights = {name: source.get(name) for name in source.names()}
    casing = casing_of(folder)
    hparams = network_of(config, folder) | casing.hparams
    name = class_of(config) or config["model_type"]
    origin, tokens = f"{name} in {folder.name}", tokens_in(folder)
    file = _file_of(tokenizer_in(folder))
    states: dict[str, Any] | None = None
    made: PretrainingConfig | FinetuningConfig
    if source.task is not None:
        made, states = _finetuning(hparams, source.task, config, given)
    else:
        hparams["electra_objective"] = "discriminator_predictions/dense/kernel" in weights
        hparams |= {"generator_hidden_size": 1.0, "generator_layers": 1.0}  # of any size: there is none
        made = _pretraining(hparams, folder.name)
    return StoredModel(
        made, weights, tokens, casing, states, origin, source.left_out, {}, False, None, file, class_of(config)
    )


def _file_of(vocab_file: str | Path) -> str:
    """The `tokenizer_file` of a model with this vocabulary."""
    return "" if is_wordpiece(vocab_file) else str(vocab_file)


def _from_checkpoint(path: str, given: Given) -> StoredModel:
    """Reads a checkpoint of the original, of tf-models, or one of several of a run of ours."""
    prefix = find_checkpoint(path)
    folder = Path(prefix).parent
    saved = read_config(folder)
    if prefix.endswith(".safetensors"):
        wanted = "has no config.json beside it, which says what it is" if saved is None else f"is read with {folder}"
        raise UserError(f"{prefix} {wanted}: give a model's folder")
    if saved is not None and not is_huggingface(saved):
        return _from_ours(str(folder), saved, given, prefix)
    vocab_file = given.vocab_file or str(folder / "vocab.txt")
    if not Path(vocab_file).is_file():
        raise UserError(f"{path} has no vocab.txt beside it: name its vocabulary with --vocab-file")
    tokens = load_vocab(vocab_file)
    left_out, said = [], hparams_beside(prefix)
    if given.num_attention_heads:
        said["num_attention_heads"] = given.num_attention_heads
    if tf_models.is_checkpoint(prefix):
        weights, said["num_attention_heads"] = tf_models.read_weights(prefix)
        left_out = [name for name in TensorFlowCheckpoint(prefix).names() if "pooler_transform" in name]
        origin = f"tf-models' encoder in {folder.name}"
    else:
        weights = CheckpointVariables(prefix).weights()
        origin = f"a TF1 checkpoint in {folder.name}"
    hparams = hparams_of({name: value.shape for name, value in weights.items()}, prefix, said)
    if len(tokens) != hparams["vocab_size"]:
        raise UserError(f"{prefix} has {hparams['vocab_size']} tokens, but {vocab_file} has {len(tokens)}")
    lower = given.do_lower_case
    if lower is None:
        lower = said.get("do_lower_case", is_uncased(tokens))
    hparams["do_lower_case"] = lower
    made = _pretraining(hparams, folder.name)
    return StoredModel(made, weights, tokens, Casing(lower), None, origin, left_out, {}, False)


def _pretraining(hparams: dict[str, Any], name: str) -> PretrainingConfig:
    """Configuration of a run with this network: sequences as long as its position embeddings allow, at most 128, and as
    many masked tokens as the papers have at its size."""
    longest = hparams["model_hparam_overrides"].get("max_position_embeddings", 512)
    recipe = f"{'electra' if hparams['electra_objective'] else 'bert'}_{hparams['model_size']}"
    usual = {"mask_prob": read_recipe(recipe)["mask_prob"], "max_seq_length": min(longest, 128)}
    return PretrainingConfig.from_dict({"model_name": name} | usual | hparams)


def _finetuning(
    hparams: dict[str, Any], task: str, config: dict[str, Any], given: Given
) -> tuple[FinetuningConfig, dict[str, Any]]:
    """Configuration of a fine-tuned model of Hugging Face, and the state of its one task."""
    labels = labels_of(config)
    described: dict[str, Any] = {"type": {"classes": "classification", "tags": "tagging", "answers": "qa"}[task]}
    state: dict[str, Any] = {"labels": labels}
    if task == "classes":
        described["text_columns"] = ["text", "text_pair"] if given.pairs else ["text"]
        if config.get("problem_type") == "regression" or len(labels) == 1:
            described["type"], state = "regression", {}
        else:
            described["labels"] = labels
    elif task == "tags":
        described["spans"] = False
    else:
        state = {}
    longest = hparams["model_hparam_overrides"].get("max_position_embeddings", 512)
    head = {
        "classifier": {"electra": "gelu", "bert": "tanh", "modernbert": "linear"}[config["model_type"]],
        "classifier_pooling": config.get("classifier_pooling", "cls"),
        "joint_prediction": False,
        "answerable_classifier": False,
        "max_seq_length": min(longest, 512),
    }
    made = FinetuningConfig.from_dict(hparams | head | {"task_names": [task], "tasks": {task: described}})
    return made, {task: state}


def _scores(folder: Path) -> dict[str, Any]:
    """Reads what a run wrote of its scores; {} if nothing."""
    for name in ("scores.json", "results/unsup_results.json"):
        if (folder / name).is_file():
            found = read_json(folder / name, "scores")
            scores = found.get("scores", found)
            if not isinstance(scores, dict):
                raise UserError(f"{folder / name} must hold an object of scores, got {shown(scores)}")
            return scores
    return {}


_PROJECTION = "/projection/kernel"  # below a task's scope


class Pooling(NamedTuple):
    """How a text's vector comes from its states; it has length 1.

    mode: "mean" of all tokens' states, special ones too, or "cls", that of [CLS]. projection: scope of a linear map
    that follows; "": none.
    """

    mode: str = "mean"
    projection: str = ""

    def width(self, model: StoredModel) -> int:
        """Numbers of a vector."""
        kernel = model.weights.get(f"{self.projection}/kernel")
        return model.architecture.hidden_size if kernel is None else kernel.shape[1]

    def vectors(self, model: StoredModel, states: np.ndarray, input_mask: np.ndarray) -> np.ndarray:
        """float32 [B, H or the projection's width] of states [B, L, H]."""
        marks = input_mask[:, :, np.newaxis]
        found = (states * marks).sum(1) / marks.sum(1) if self.mode == "mean" else states[:, 0]
        if self.projection:
            found = found @ model.weights[f"{self.projection}/kernel"] + model.weights[f"{self.projection}/bias"]
        return (found / np.linalg.norm(found, axis=-1, keepdims=True)).astype(np.float32)


def embeds(model: StoredModel) -> bool:
    """True if a model was fine-tuned to make vectors of texts."""
    config = model.config
    return isinstance(config, FinetuningConfig) and "embedding" in map(config.kind_of, config.task_names)


def pooling_of(model: StoredModel) -> Pooling:
    """As the model was trained, or the mean where it was not."""
    if not embeds(model):
        return Pooling()
    assert isinstance(model.config, FinetuningConfig)
    projections = [name.removesuffix("/kernel") for name in model.weights if name.endswith(_PROJECTION)]
    return Pooling(model.config.classifier_pooling, *projections[:1])
