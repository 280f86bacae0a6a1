"""Reading a Hugging Face directory: its tensors under our names. Needs neither PyTorch nor transformers.

    config.json, model.safetensors (or several with model.safetensors.index.json), vocab.txt or tokenizer.json

Read are the networks of the classes of ELECTRA and BERT, with the heads of pre-training and those for labels, tags and
answers. Poolers without such a head and next-sentence classifiers are left out, and said so.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from electra_tf2.exchange import huggingface_names as names
from electra_tf2.exchange.formats.folders import read_config
from electra_tf2.exchange.formats.huggingface_config import class_of, network_of
from electra_tf2.exchange.tensor_file import FILE_NAME, TensorFile
from electra_tf2.model.architecture import make_architecture
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_json

_INDEX = f"{FILE_NAME}.index.json"
_PREFIXES = ("electra.", "bert.", "")


# Names in older files, and what is said since.
_LM_BIAS = ("cls.predictions.decoder.bias", "cls.predictions.bias")
_LAYER_NORM = ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias"))  # TensorFlow's


class Tensors(Mapping[str, np.ndarray]):
    """The tensors of one or several files by today's names, read when asked for."""

    def __init__(self, folder: Path) -> None:
        index = folder / _INDEX
        paths = [folder / FILE_NAME]
        if index.is_file():
            paths = sorted({folder / name for name in read_json(index, "weights")["weight_map"].values()})
        if not all(path.is_file() for path in paths):
            old = (
                "; pytorch_model.bin is a pickle, which is not read: save it again with transformers' "
                "save_pretrained, which writes safetensors"
            )
            lacking = next(path.name for path in paths if not path.is_file())
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
    head it has (huggingface_names.TASK_HEADS), or None. left_out: tensors that have no place here.

    Raises:
      UserError: another kind of network, or one with missing parts.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        config = read_config(folder)
        if config is None:
            raise UserError(f"{folder} has no config.json")
        network = network_of(config, self.folder)
        self.architecture = make_architecture(
            network["model_size"], network["model_hparam_overrides"], network["vocab_size"], network["embedding_size"]
        )
        self._tensors = Tensors(self.folder)
        prefix = prefix_of(self._tensors)
        if prefix is None:
            raise UserError(f"{folder}: no encoder among its tensors: {', '.join(sorted(self._tensors)[:5])} ...")
        self._pairs = {pair.ours: pair for pair in names.encoder(self.architecture, prefix)}
        missing = [name for name, pair in self._pairs.items() if not _is_there(pair, self._tensors)]
        if missing:
            raise UserError(f"{folder}: tensors are missing for {', '.join(missing[:5])}")
        for head in (names.DETECTION_HEAD, names.ELECTRA_LM_HEAD, names.BERT_LM_HEAD):
            if all(_is_there(pair, self._tensors) for pair in head):
                self._pairs |= {pair.ours: pair for pair in head}
        self.task = None
        task, head = names.TASK_HEADS.get(class_of(config), (None, []))
        if config.get("problem_type") == "multi_label_classification":  # ours choose one of the labels
            task = None
        if task and all(_is_there(pair, self._tensors) for pair in head):
            self.task = task
            self._pairs |= {pair.ours: pair for pair in head}
        used = {name for pair in self._pairs.values() for name in pair.theirs}
        self.left_out = sorted(name for name in self._tensors if name not in used and not _is_copy(name))

    def names(self) -> list[str]:
        return sorted(self._pairs)

    def get(self, name: str) -> np.ndarray:
        value = self._pairs[name].to_ours(self._tensors)
        assert value is not None
        return value[: self.architecture.vocab_size] if name.endswith(("/word_embeddings", "/output_bias")) else value


def prefix_of(tensors: Mapping[str, np.ndarray]) -> str | None:
    """What stands before the names of the encoder's tensors; None if there is no encoder."""
    return next((prefix for prefix in _PREFIXES if f"{prefix}embeddings.word_embeddings.weight" in tensors), None)


def _is_there(pair: names.Pair, tensors: Mapping[str, np.ndarray]) -> bool:
    return all(name in tensors for name in pair.theirs)


def _todays_name(name: str) -> str:
    return next((name.removesuffix(old) + new for old, new in _LAYER_NORM if name.endswith(old)), name)


def _is_copy(name: str) -> bool:
    """Buffers and tied copies: nothing is lost with them."""
    return name in names.TIED or name.endswith("embeddings.position_ids")
