"""Sentence-transformers folders: the same vectors, read from the files and by sentence-transformers itself."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.exports import self_check, sentence_transformers
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model import Model
from electra_tf2.inference.model_config import make_network, pooling_of
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import run_program

TEXTS = ["the man went to the house", "Some OTHER text, with Café.", "of", "went of " * 300]


def _written(model: StoredModel, folder: Path) -> float:
    sentence_transformers.write_sentence_transformer(folder, model)
    return sentence_transformers.difference(model, folder)


def _projected(pooling: str) -> StoredModel:
    """A model whose vectors are a projection to 16 numbers."""
    hparams: dict[str, Any] = {"classifier_pooling": pooling, "embedding_projection": 16}
    return support.fine_tuned("sentence_embedding", support.dense(16, "projection"), {}, **hparams)


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_the_files_say_the_same_vectors(mode: str, tmp_path: Path) -> None:
    assert _written(_projected(mode), tmp_path) < 1e-5
    [_, pooling, dense, last] = [module["type"] for module in json.loads((tmp_path / "modules.json").read_text())]
    assert [kind.split(".")[-1] for kind in (pooling, dense, last)] == ["Pooling", "Dense", "Normalize"]
    said = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    said["pooling_mode_mean_tokens"] = not said["pooling_mode_mean_tokens"]
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(said))
    assert sentence_transformers.difference(_projected(mode), tmp_path) > 1e-2


def test_as_many_tokens_are_read_as_embed_reads(tmp_path: Path) -> None:
    model = support.tiny().changed(hparams=dict(support.tiny().hparams) | {"max_seq_length": 8})  # of its training
    _written(model, tmp_path)
    said = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    assert said["max_seq_length"] == Model(model).max_length > 8


@pytest.mark.parametrize("positions", [64, 1024])
def test_never_more_tokens_are_read_than_the_model_has_positions_or_embed_reads(positions: int, tmp_path: Path) -> None:
    model = support.with_crc_weights({"max_position_embeddings": positions})
    sentence_transformers.write_sentence_transformer(tmp_path, model)
    said = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    assert said["max_seq_length"] == Model(model).max_length == min(positions, 512)


def test_a_folder_that_cuts_texts_earlier_is_read_and_written_again_so(tmp_path: Path) -> None:
    sentence_transformers.write_sentence_transformer(tmp_path / "theirs", support.tiny())
    length_file = tmp_path / "theirs" / "sentence_bert_config.json"
    said = json.loads(length_file.read_text())
    length_file.write_text(json.dumps(said | {"max_seq_length": 16}))
    model = read_model(str(tmp_path / "theirs"))
    assert Model(model).max_length == 16
    sentence_transformers.write_sentence_transformer(tmp_path / "again", model)
    assert json.loads((tmp_path / "again" / "sentence_bert_config.json").read_text()) == said | {"max_seq_length": 16}


_STRANGER = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
np.save(sys.argv[3], model.encode(json.loads(sys.argv[2])))
assert "tensorflow" not in sys.modules
"""


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
@pytest.mark.parametrize("projected", [False, True])
def test_sentence_transformers_encodes_to_the_same_vectors(projected: bool, tmp_path: Path) -> None:
    model = _projected("mean") if projected else support.tiny()
    _written(model, tmp_path / "folder")
    command = [sys.executable, "-c", _STRANGER, f"{tmp_path}/folder", json.dumps(TEXTS), f"{tmp_path}/found.npy"]
    subprocess.run(command, check=True, cwd=tmp_path)
    encoded = self_check.fixed_inputs(model, TEXTS)
    ids, mask, segments = map(tf.constant, encoded)
    ours = make_network(model).text_vectors(ids, mask, segments, pooling_of(model))
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), ours, atol=1e-5)


def test_the_program_writes_one(tmp_path: Path) -> None:
    words = ["convert_model.py", "--format", "sentence_transformers", "--to", f"{tmp_path}/folder"]
    done = run_program(*words, "--from", str(golden.CHECKPOINT))
    assert done.returncode == 0 and "vectors included" in done.stdout, done.stderr
    card = (tmp_path / "folder" / "README.md").read_text()
    assert "SentenceTransformer" in card
    # The detector has not learned to tell sentences apart.
    assert "finds all texts alike" in card and "finds all texts alike" in done.stdout


def test_a_network_that_transformers_has_not_is_refused(tmp_path: Path) -> None:
    model = support.with_crc_weights({"norm_style": "pre"})
    with pytest.raises(UserError, match="onnx"):
        sentence_transformers.write_sentence_transformer(tmp_path, model)
