"""Reading the weights of Hugging Face directories (formats.huggingface_names says which of their tensors are which).

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Needs neither PyTorch nor transformers. Read are the networks of the classes of ELECTRA, BERT and ModernBERT, with the
heads of pre-training and those for labels, tags and answers. Poolers without such a head and next-sentence classifiers
are left out, and reported.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.formats import huggingface_names as names
from electra_tf2.formats.folders import read_config
from electra_tf2.formats.huggingface_config import labels_of, network_of
from electra_tf2.formats.tensor_file import FILE_NAME, INDEX_NAME, TensorFile
from electra_tf2.model.architecture import make_architecture
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.reading import is_file, read_json

# Names in older files, and those of today.
_LM_BIAS = ("cls.predictions.decoder.bias", "cls.predictions.bias")
_LAYER_NORM = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))  # TensorFlow's
_OF_VOCABULARY = ("/word_embeddings", "/output_bias", "/decoder")  # variables with a row for each token


class Tensors(Mapping[str, np.ndarray]):
    """Tensors of one or several files by today's names, read when asked for."""

    def __init__(self, folder: Path) -> None:
        index = folder / INDEX_NAME
        paths = [folder / FILE_NAME]
        if is_file(index):
            paths = _listed_in(index)
        if not all(map(is_file, paths)):
            old = (
                "; pytorch_model.bin is a pickle, which is not read: save it again with transformers' "
                "save_pretrained, which writes safetensors"
            )
            lacking = next(path.name for path in paths if not is_file(path))
            raise UserError(f"{folder} has no {lacking}{old if (folder / 'pytorch_model.bin').is_file() else ''}")
        files = map(TensorFile, paths)
        self._files = {_todays_name(name): (file, name) for file in files for name in file.names()}
        old, new = _LM_BIAS
        if old in self._files:
            self._files.setdefault(new, self._files[old])

    def __getitem__(self, name: str) -> np.ndarray:
        file, stored = self._files[name]
        return file.get(stored)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


class HuggingFaceWeights:
    """The weights of a directory by our names, the encoder under "electra/".

    Rows of tables beyond the vocabulary, which some releases pad, are cut off. task: name of the task of ours whose
    head it has, or None. left_out: tensors that have no place here.

    Raises:
      UserError: another kind of network, or one with missing parts.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        config = read_config(folder)
        if config is None:
            raise UserError(f"{folder} has no config.json")
        network, modern = network_of(config, self.folder), config["model_type"] == "modernbert"
        if config.get("id2label") is not None:
            labels_of(config)  # whatever the class, no labels that are none
        self.architecture = make_architecture(
            network["model_size"], network["model_hparam_overrides"], network["vocab_size"], network["embedding_size"]
        )
        self._tensors = Tensors(self.folder)
        prefix = names.prefix_of(self._tensors)
        if prefix is None:
            raise UserError(f"{folder}: no encoder among its tensors: {', '.join(sorted(self._tensors)[:5])} ...")
        self._pairs = {pair.ours: pair for pair in names.encoder(self.architecture, prefix, modern)}
        missing = [name for name, pair in self._pairs.items() if not self._has(pair)]
        if missing:
            raise UserError(f"{folder}: tensors are missing for {', '.join(missing[:5])}")
        for name, shape in names.shapes(self.architecture, prefix, modern).items():
            found = self._tensors[name].shape if name in self._tensors else shape
            if found != shape:
                raise UserError(f"{folder}: {name} is {found}, but by config.json it is {shape}")
        self.task: str | None = None
        self._zeros: dict[str, int] = {}
        for head in names.heads_in(config, self.architecture):
            if all(map(self._has, head.pairs)):
                self.task = head.task
                self._pairs |= {pair.ours: pair for pair in head.pairs}
                self._zeros |= head.zeros
        used = {name for pair in self._pairs.values() for name in pair.theirs}
        unused = [name for name in self._tensors if name not in used]
        self.left_out = sorted(name for name in unused if not self._is_copy(name))
        self._check_language_model(config)

    def _check_language_model(self, config: Mapping[str, Any]) -> None:
        """Raises UserError for a masked language model whose head computes something else than ours."""
        if "generator_predictions/output_bias" not in self._pairs:
            return
        apart = [name for name in self.left_out if name in names.TIED]
        if apart and config.get("tie_word_embeddings", True) is False:
            raise UserError(
                f"{self.folder}: {apart[0]} is an output table of its own (tie_word_embeddings false), which our "
                "networks have in ModernBERT's architecture only"
            )
        if "generator_lm_head.bias" in self._tensors and self.architecture.hidden_act != "gelu":
            raise UserError(
                f"{self.folder}: the head of ElectraForMaskedLM has the activation gelu, its layers "
                f"{self.architecture.hidden_act} (hidden_act): our networks have one for both"
            )

    def _has(self, pair: names.Pair | names.DifferenceOfLabels) -> bool:
        return all(name in self._tensors for name in pair.theirs)

    def _is_copy(self, name: str) -> bool:
        """True for numbers of positions, and for what is the same as the tensor that transformers ties it to."""
        if name.endswith("embeddings.position_ids"):
            return True
        tied = next((there for there in names.TIED.get(name, ()) if there in self._tensors), None)
        return tied is not None and np.array_equal(self._tensors[name], self._tensors[tied])

    def names(self) -> list[str]:
        return sorted([*self._pairs, *self._zeros])

    def get(self, name: str) -> np.ndarray:
        if name in self._zeros:
            return np.zeros([self._zeros[name]], np.float32)
        pair = self._pairs[name]
        try:
            value = pair.to_ours(self._tensors)
            return value[: self.architecture.vocab_size] if name.endswith(_OF_VOCABULARY) else value
        except UserError:
            raise
        except (ValueError, IndexError):
            shapes = ", ".join(f"{theirs} {self._tensors[theirs].shape}" for theirs in pair.theirs)
            raise UserError(f"{self.folder}: the shapes of {shapes} make no {name}") from None


def _listed_in(index: Path) -> list[Path]:
    """The files that an index names. Raises UserError where it names none, or one outside of its folder."""
    files = read_json(index, "weights").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise UserError(f"{index}: weight_map, an object of tensors and their files, is needed, got {shown(files)}")
    outside = [name for name in files.values() if Path(name).name != name]
    if outside:
        raise UserError(f"{index} names {outside[0]!r}: only files in its own folder are read")
    return sorted({index.parent / name for name in files.values()})


def _todays_name(name: str) -> str:
    return next((name.removesuffix(old) + new for old, new in _LAYER_NORM if name.endswith(old)), name)
