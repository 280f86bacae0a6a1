"""Our own folders: those of runs, and self-contained ones that `electra convert` writes, which may be moved anywhere.

config.json          the resolved configuration of the run that trained it
vocab.txt            the vocabulary; or tokenizer.json
model.safetensors    weights under our names, in float32, bfloat16 or float16; a run has TensorFlow checkpoints instead
tasks.json           for a fine-tuned model: what the outputs of its heads mean
scores.json          scores that its run wrote
huggingface.json     the class of transformers that it was converted from
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_tf2.corpus.vocabulary import TOKENIZER_FILE
from electra_tf2.files.reading import read_json, read_text, typed
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats.checkpoint_files import BEST, BEST_FOLDER, PREFIX
from electra_tf2.formats.folders import SCORES, VOCABULARY
from electra_tf2.formats.stored_model import NETWORK_HPARAMS, Hints, StoredModel, weights_module
from electra_tf2.model.architecture import Architecture
from electra_tf2.util.errors import UserError, shown

if TYPE_CHECKING:
    from electra_tf2.formats.stored_weights import Weights

_CLASS_FILE = "huggingface.json"
_SCORES_FILES = (SCORES, "results/unsup_results.json")  # the second is a pre-training run's


# Reading.


class ElectraFolder(StoredModel):
    """A run's folder, or a self-contained one.

    Args:
      config: content of its config.json.
      checkpoint: prefix of one of its checkpoints; "": the newest one, or the best one that fine-tuning kept.
    """

    is_run = True
    hints_in_files = ("num_attention_heads", "do_lower_case")

    def __init__(self, folder: Path, config: dict[str, Any], hints: Hints, checkpoint: str) -> None:
        super().__init__(folder, hints)
        self.hparams = config
        self.checkpoint = checkpoint

    @cached_property
    def network(self) -> dict[str, Any]:
        missing = [name for name in NETWORK_HPARAMS if name not in self.hparams]
        if missing:
            where = f"{self.path}/config.json"
            raise UserError(f"{where} is not the configuration of a model: it lacks {', '.join(missing)}")
        network = {name: self.hparams[name] for name in NETWORK_HPARAMS}
        if "do_strip_accents" in self.hparams:
            network["do_strip_accents"] = self.hparams["do_strip_accents"]
        return network | {"vocab_file": self.vocab_file}

    @property
    def architecture(self) -> Architecture:
        self.network  # noqa: B018 - raises UserError if the configuration lacks sizes
        return super().architecture

    @cached_property
    def vocab_file(self) -> str:
        if self.hints.vocab_file:
            return self.hints.vocab_file
        for name in (VOCABULARY, TOKENIZER_FILE):
            path = self.folder / name
            if path.is_file():
                return str(path)
        if "vocab_file" not in self.hparams:
            raise UserError(f"{self.folder / 'config.json'} is no configuration of a run: it lacks vocab_file")
        return self.hparams["vocab_file"]

    @cached_property
    def weights(self) -> "Weights":
        return weights_module().weights_at(self._file_of_weights)

    @cached_property
    def _file_of_weights(self) -> str:
        """Path of model.safetensors, or prefix of the checkpoint."""
        if self.checkpoint:
            return self.checkpoint
        path = best_or_newest(self.path) if self.is_fine_tuned else self.path
        return weights_module().find_checkpoint(path)

    @property
    def step(self) -> int:
        step = self._file_of_weights.rpartition(PREFIX)[2]
        return int(step) if step.isdecimal() else 0

    @cached_property
    def task_states(self) -> dict[str, Any] | None:
        path = self.folder / "tasks.json"
        if not self.is_fine_tuned or not path.is_file():
            return None
        states = read_json(path, "tasks")
        if not all(isinstance(state, dict) for state in states.values()):
            raise UserError(f"{path} must hold an object for each task, got {shown(states)}")
        return states

    @cached_property
    def scores(self) -> dict[str, Any]:
        for name in _SCORES_FILES:
            path = self.folder / name
            if path.is_file():
                content = read_json(path, "scores")
                if "scores" not in content:
                    return content
                if not isinstance(content["scores"], dict):
                    raise UserError(f"{path} must hold an object of scores, got {shown(content['scores'])}")
                # A trial's. Not all of it, since the mistakes there quote the development data.
                return {name: content[name] for name in ("scores", "evaluation") if name in content}
        return {}

    @cached_property
    def class_name(self) -> str:
        path = self.folder / _CLASS_FILE
        if not path.is_file():
            return ""
        name = read_json(path, "class of transformers").get("class", "")
        return typed(name, str, f"{path}: class")


def best_or_newest(path: str) -> str:
    """Path of the best checkpoint that fine-tuning kept in a folder; the folder itself, for its newest, if none."""
    best = Path(path) / BEST_FOLDER / BEST
    if not best.is_file():
        return path
    name = read_json(best, "best checkpoint").get("path")
    if not isinstance(name, str) or Path(name).name != name:
        raise UserError(f"{best} names no checkpoint in its folder: path is {shown(name)}")
    return str(best.parent / name)


# Writing.


def write_folder(folder: str | Path, model: StoredModel, dtype: str = "float32") -> str:
    """Writes a self-contained folder. config.json comes last: a folder that has one is complete.

    Args:
      model: from `inference.model_config.with_config`.
      dtype: type of the stored weights, one of `tensor_file.DTYPES`.

    Returns:
      Name of the vocabulary's file.
    """
    from electra_tf2.formats.tensor_file import FILE_NAME, write_tensors

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_tensors(folder / FILE_NAME, model.weights, dtype)
    vocabulary = write_vocabulary(folder, model)
    _write_or_remove(folder / SCORES, model.scores)
    _write_or_remove(folder / "tasks.json", model.task_states)
    class_of_transformers = {"class": model.class_name} if model.class_name else None
    _write_or_remove(folder / _CLASS_FILE, class_of_transformers)
    config = model.resolved_hparams | {"vocab_file": vocabulary}
    write_json(folder / "config.json", config, sort_keys=False)
    return vocabulary


def _write_or_remove(path: Path, content: dict[str, Any] | None) -> None:
    """Writes a JSON file. With no content, removes the file that an earlier model left in the folder."""
    if content:
        write_json(path, content)
    else:
        path.unlink(missing_ok=True)


def write_vocabulary(folder: Path, model: StoredModel) -> str:
    """Writes vocab.txt, or a copy of the model's tokenizer.json, and removes the other. Returns the file's name."""
    if model.tokenizer_file:
        text = read_text(model.tokenizer_file, "tokenizer")
        name = TOKENIZER_FILE
        other = VOCABULARY
    else:
        text = "".join(f"{token}\n" for token in model.tokens)
        name = VOCABULARY
        other = TOKENIZER_FILE
    write_atomically(folder / name, text)
    (folder / other).unlink(missing_ok=True)
    return name
