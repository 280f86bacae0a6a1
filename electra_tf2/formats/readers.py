"""Readers of models: what lies at a path, as a StoredModel.

    open_model(path)   of a run, a self-contained folder of ours, a Hugging Face directory, a checkpoint of the original
                       or of tf-models-official's encoder; read when it is asked for
    find_model(path)   the same, but a model that says nothing where there is none
    read_model(path)   the same, all of it read now

A folder of ours has config.json (the resolved configuration of its run), vocab.txt or tokenizer.json, and its weights
in model.safetensors or TensorFlow's checkpoints. Hugging Face's config.json has a `model_type`. Checkpoints without a
config.json are what the shapes of their variables say. TensorFlow and numpy are imported when weights are asked for,
or the sizes of such a checkpoint.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.config.recipes import read_recipe
from electra_tf2.corpus.vocabulary import TOKENIZER_FILE, load_vocab
from electra_tf2.files.reading import read_json, typed
from electra_tf2.formats import huggingface_config, tf_models
from electra_tf2.formats import original_config as original
from electra_tf2.formats.checkpoint_files import PREFIX
from electra_tf2.formats.folders import VOCABULARY, read_config
from electra_tf2.formats.huggingface_config import Casing
from electra_tf2.formats.stored_model import CLASS_FILE, DETECTOR, NETWORK_HPARAMS, NOTHING, Given, StoredModel
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError, shown

if TYPE_CHECKING:
    from electra_tf2.formats.huggingface import Read
    from electra_tf2.formats.weights import TensorFlowCheckpoint, Weights


def find_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """The model at a path; one that says nothing where there is none, and for "".

    Raises:
      UserError: config.json is no JSON object.
    """
    if not str(path):
        return StoredModel(path)
    place, prefix = Path(path), ""
    config = read_config(place)
    if config is None:
        prefix = str(path) if place.suffix == ".safetensors" else original.find_prefix(place) or ""
        place = Path(prefix).parent
        config = read_config(place) if prefix else None
    if config is None:
        return _Checkpoint(prefix, given) if prefix else StoredModel(path)
    if huggingface_config.is_huggingface(config):
        return _HuggingFace(place, config, given)
    return _Ours(place, config, given, prefix)


def open_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """The model at a path.

    Raises:
      UserError: nothing is there, which says what was looked for; or something is given that its own files say.
    """
    model = find_model(path, given)
    idle = [name for name in model.says if getattr(given, name) is not None]
    if idle:
        raise UserError(f"{' and '.join(idle)}: given for a checkpoint that does not say it, but {path} does")
    if given.pairs and not isinstance(model, _HuggingFace):
        raise UserError(f"pairs: given for a classifier of Hugging Face, but {path} is none")
    if type(model) is not StoredModel:
        return model
    return _Checkpoint(_readers().find_checkpoint(str(path)), given)  # in a file system that TensorFlow alone knows


def read_model(path: str | Path, given: Given = NOTHING) -> StoredModel:
    """Reads all of the model at a path.

    Raises:
      UserError: nothing is there, or nothing that can be read; names what is missing.
    """
    model = open_model(path, given)
    for name in ("network", "hparams", "tokens", "casing", "task_states", "scores", "left_out", "class_name"):
        getattr(model, name)
    return model.changed(weights=dict(model.weights))


def best_or_newest(path: str) -> str:
    """Best checkpoint of a fine-tuned folder, where its run kept it; else the path as it is."""
    best = Path(path) / "best" / "best.json"
    if not best.is_file():
        return path
    name = read_json(best, "best checkpoint").get("path")
    if not isinstance(name, str) or Path(name).name != name:
        raise UserError(f"{best} names no checkpoint in its folder: path is {shown(name)}")
    return str(best.parent / name)


class _Ours(StoredModel):
    """A run or a self-contained folder.

    Args:
      config: its config.json.
      checkpoint: one of its checkpoints; "": the newest or, fine-tuned, the best.
    """

    is_run = True
    says = ("num_attention_heads", "do_lower_case")

    def __init__(self, folder: Path, config: dict[str, Any], given: Given, checkpoint: str) -> None:
        super().__init__(folder, given)
        self.hparams, self.checkpoint = config, checkpoint

    @cached_property
    def network(self) -> dict[str, Any]:
        missing = [name for name in NETWORK_HPARAMS if name not in self.hparams]
        if missing:
            where = f"{self.path}/config.json"
            raise UserError(f"{where} is not the configuration of a model: it lacks {', '.join(missing)}")
        names = [name for name in (*NETWORK_HPARAMS, "do_strip_accents") if name in self.hparams]
        return {name: self.hparams[name] for name in names} | {"vocab_file": self.vocab_file}

    @property
    def architecture(self) -> Architecture:
        self.network  # noqa: B018 - what it lacks is said by name
        return super().architecture

    @cached_property
    def vocab_file(self) -> str:
        if self.given.vocab_file:
            return self.given.vocab_file
        for name in (VOCABULARY, TOKENIZER_FILE):
            if (own := self.folder / name).is_file():
                return str(own)
        if "vocab_file" not in self.hparams:
            raise UserError(f"{self.folder / 'config.json'} is no configuration of a run: it lacks vocab_file")
        return self.hparams["vocab_file"]

    @cached_property
    def weights(self) -> "Weights":
        if not self.checkpoint:
            path = best_or_newest(self.path) if self.is_fine_tuned else self.path
            self.checkpoint = _readers().find_checkpoint(path)
        return _readers().weights_at(self.checkpoint)

    @property
    def step(self) -> int:
        step = self.weights.where.rpartition(PREFIX)[2]
        return int(step) if step.isdecimal() else 0

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        file = self.folder / "tasks.json"
        states = read_json(file, "tasks") if self.is_fine_tuned and file.is_file() else None
        if states is not None and not all(isinstance(state, dict) for state in states.values()):
            raise UserError(f"{file} must hold an object for each task, got {shown(states)}")
        return states

    @cached_property
    def scores(self) -> dict[str, Any]:
        for name in ("scores.json", "results/unsup_results.json"):
            if (self.folder / name).is_file():
                found = read_json(self.folder / name, "scores")
                scores = found.get("scores", found)
                if not isinstance(scores, dict):
                    raise UserError(f"{self.folder / name} must hold an object of scores, got {shown(scores)}")
                return scores
        return {}

    @cached_property
    def class_name(self) -> str:
        file = self.folder / CLASS_FILE
        name = read_json(file, "class of transformers").get("class", "") if file.is_file() else ""
        return typed(name, str, f"{file}: class")


class _HuggingFace(StoredModel):
    """A Hugging Face directory, with its config.json."""

    says = ("num_attention_heads", "do_lower_case", "vocab_file")

    def __init__(self, folder: Path, config: dict[str, Any], given: Given) -> None:
        super().__init__(folder, given)
        self._config = config

    @cached_property
    def origin(self) -> str:
        return f"{self.class_name or self._config['model_type']} in {self.folder.name}"

    @cached_property
    def network(self) -> dict[str, Any]:
        found = huggingface_config.network_of(self._config, self.folder) | self.casing.hparams
        return found | {"vocab_file": self.vocab_file}

    @cached_property
    def hparams(self) -> dict[str, Any]:
        if self._read.task is not None:
            return self.network | self._head()[0]
        detects = f"{DETECTOR}/dense/kernel" in self.weights
        no_generator = {"generator_hidden_size": 1.0, "generator_layers": 1.0}  # of any size
        return _pretraining(self.network | {"electra_objective": detects} | no_generator, self.folder.name)

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        return None if self._read.task is None else self._head()[1]

    def _head(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Hparams of the task that its head is of, and the state of that one task."""
        task, config = self._read.task or "", self._config
        labels = huggingface_config.labels_of(config)
        described: dict[str, Any] = {"type": {"classes": "classification", "tags": "tagging", "answers": "qa"}[task]}
        state: dict[str, Any] = {"labels": labels}
        if task == "classes":
            described["text_columns"] = ["text", "text_pair"] if self.given.pairs else ["text"]
            if config.get("problem_type") == "regression" or len(labels) == 1:
                described["type"], state = "regression", {"range": [0.0, 1.0]}
            else:
                described["labels"] = labels
        elif task == "tags":
            described["spans"] = False
        else:
            state = {}
        hparams = {
            "task_names": [task],
            "tasks": {task: described},
            "classifier": {"electra": "gelu", "bert": "tanh", "modernbert": "linear"}[config["model_type"]],
            "classifier_pooling": config.get("classifier_pooling", "cls"),
            "joint_prediction": False,
            "answerable_classifier": False,
            "max_seq_length": min(self.network["model_hparam_overrides"]["max_position_embeddings"], 512),
        }
        return hparams, {task: state}

    @cached_property
    def vocab_file(self) -> str:
        return str(huggingface_config.tokenizer_in(self.folder))

    @cached_property
    def tokens(self) -> list[str]:
        return huggingface_config.tokens_in(self.folder)

    @cached_property
    def casing(self) -> Casing:
        return huggingface_config.casing_of(self.folder)

    @cached_property
    def _read(self) -> "Read":
        from electra_tf2.formats.huggingface import read_weights

        return read_weights(self.folder, self._config, self.network)

    @cached_property
    def weights(self) -> "Weights":
        return _readers().Weights(self._read.weights, self.path)

    @cached_property
    def left_out(self) -> list[str]:
        return self._read.left_out

    @cached_property
    def class_name(self) -> str:
        return huggingface_config.class_of(self._config)


class _Checkpoint(StoredModel):
    """A checkpoint without a configuration beside it: the original's, or one of tf-models' encoder."""

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    @cached_property
    def origin(self) -> str:
        kind = "tf-models' encoder" if self._encoder else "a TF1 checkpoint"
        return f"{kind} in {self.folder.name}"

    @cached_property
    def _stored(self) -> "TensorFlowCheckpoint":
        if self.path.endswith(".safetensors"):
            raise UserError(f"{self.path} has no config.json beside it, which says what it is: give a model's folder")
        return _readers().TensorFlowCheckpoint(self.path)

    @property
    def _is_ours(self) -> bool:
        """Tells whether it is of a run of ours, which may have any network."""
        return self.path.endswith(".safetensors") or (not self._encoder and self._stored.is_object_graph)

    @property
    def _is_original(self) -> bool:
        """Tells whether it is the original's, whose shapes say what it is."""
        return not self._is_ours and original.WORDS in self._stored

    @cached_property
    def _encoder(self) -> tf_models.Read | None:
        """tf-models' encoder; None if there is none."""
        if self.path.endswith(".safetensors") or not tf_models.is_encoder(self._stored):
            return None
        try:
            return tf_models.read_encoder(self._stored)
        except UserError:
            raise
        except (IndexError, KeyError, ValueError) as error:
            raise UserError(f"{self.path}: the variables of its encoder do not fit together: {error}") from None

    @cached_property
    def _said(self) -> dict[str, Any]:
        """Facts that shapes do not tell."""
        said = original.hparams_beside(self.path)
        if self.given.num_attention_heads:
            said["num_attention_heads"] = self.given.num_attention_heads
        if self._encoder:
            said["num_attention_heads"] = self._encoder.heads
        return said

    @cached_property
    def hparams(self) -> dict[str, Any]:
        found = self._sizes | {"vocab_file": self.vocab_file, "do_lower_case": self._lower_case}
        return _pretraining(found, self.folder.name)

    @cached_property
    def _sizes(self) -> dict[str, Any]:
        """Hparams that shapes say."""
        shapes = self._stored.shapes
        if self._encoder or self._is_ours:
            shapes = {name: value.shape for name, value in self.weights.items()}
        return original.hparams_of(shapes, self.path, self._said)

    @cached_property
    def network(self) -> dict[str, Any]:
        if not (self._is_original or self._encoder):
            return {}
        found = {name: self._sizes[name] for name in NETWORK_HPARAMS if name in self._sizes}
        if (self.folder / VOCABULARY).is_file():
            found |= {"vocab_file": self.vocab_file, "do_lower_case": self._lower_case}
        return found

    @cached_property
    def generator_hparams(self) -> dict[str, Any]:
        sizes = self._sizes if self._is_original else {}
        return {name: sizes[name] for name in original.GENERATOR_HPARAMS if name in sizes}

    @property
    def _lower_case(self) -> bool:
        """As given or said, or else true where no token but the special ones begins with a capital."""
        given = self.given.do_lower_case if self.given.do_lower_case is not None else self._said.get("do_lower_case")
        capitals = (token[:1].isupper() for token in load_vocab(self.vocab_file) if not token.startswith("["))
        return not any(capitals) if given is None else given

    @cached_property
    def vocab_file(self) -> str:
        found = self.given.vocab_file or str(self.folder / VOCABULARY)
        if not Path(found).is_file():
            raise UserError(f"{self.path} has no vocab.txt beside it: name its vocabulary with --vocab-file")
        return found

    @cached_property
    def weights(self) -> "Weights":
        encoder = self._encoder
        return _readers().Weights(encoder.weights, self.path) if encoder else _readers().weights_at(self.path)

    @cached_property
    def left_out(self) -> list[str]:
        return self._encoder.left_out if self._encoder else []


def _readers() -> Any:
    """The module that reads weights, which imports TensorFlow."""
    import_tensorflow()
    from electra_tf2.formats import weights

    return weights


def _pretraining(hparams: dict[str, Any], name: str) -> dict[str, Any]:
    """Hparams of a run with this network: sequences as long as its position embeddings allow, at most 128, and as many
    masked tokens as the papers have at its size."""
    longest = hparams["model_hparam_overrides"].get("max_position_embeddings", 512)
    recipe = f"{'electra' if hparams['electra_objective'] else 'bert'}_{hparams['model_size']}"
    usual = {"mask_prob": read_recipe(recipe)["mask_prob"], "max_seq_length": min(longest, 128)}
    return {"model_name": name} | usual | hparams
