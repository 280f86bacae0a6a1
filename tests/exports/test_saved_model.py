"""SavedModels with the tokenizer inside: equal to ours from strings, loaded where none of our code is."""

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.corpus.encoding import encode
from electra_tf2.corpus.normalization import TextNormalizer
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exports import saved_model, sentence_transformers
from electra_tf2.exports.exportable import Options, Written
from electra_tf2.exports.graph_tokenizer import GraphTokenizer
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import Casing, StoredModel
from electra_tf2.inference.predictor import Predictor
from tests.support import golden
from tests.support import stored_models as support
from tests.support.stored_models import dense

TOKENS = (golden.GOLDEN / "tokenizer_vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
TEXTS = golden.load_json("tokenizer")["texts"]
ODD = [
    "ΑΣ ΣΑΣ Σ Α.Σ. ΑΣ\N{SOFT HYPHEN}Β ΑΣ\N{SOFT HYPHEN} ΟΔΟΣ, ΣΑΣ1 'Σ' Α'Σ",
    "x" * 200 + " " + "x" * 201 + " " + "é" * 201 + "," + "中" * 300,
    "a\tb\rc\u2028d\u3000e\x00f\x7fg\N{ZERO WIDTH SPACE}h",
    "İstanbul ŒUVRE ﬁ Ǆ ẞ 한국어 ｆｕｌｌ Ⅷ",
    "",
    "   ",
]


@pytest.mark.parametrize("casing", [Casing(True, None), Casing(True, False), Casing(False, None)])
def test_the_graphs_tokenizer_gives_our_ids(casing: Casing) -> None:
    ours = WordpieceTokenizer(TOKENS, *casing)
    graph = GraphTokenizer(TOKENS, *casing, 512)
    texts = TEXTS + ODD
    lines = [text.encode("utf-8", "surrogatepass") for text in texts]
    pieces = graph.pieces(tf.constant(lines)).to_list()
    ids, lengths = ours.tokenize(lines)
    for text, found, expected in zip(texts, pieces, np.split(ids, np.cumsum(lengths)[:-1]), strict=True):
        assert found == expected.tolist(), repr(text)
    broken = [b"a\xff\xfeb \xe4\xb8", b"\xc3\x28 caf\xc3\xa9"]
    assert graph.pieces(tf.constant(broken)).flat_values.numpy().tolist() == ours.tokenize(broken)[0].tolist()


def test_every_character_is_normalised_as_ours_by_itself() -> None:
    for casing in (Casing(True, None), Casing(False, None)):
        codes = [code for code in range(1, sys.maxunicode + 1, 11) if not 0xD800 <= code <= 0xDFFF]
        lines = [f"a{chr(code)}b".encode() for code in codes if chr(code) != "\n"]
        graph = GraphTokenizer(TOKENS, *casing, 512)
        assert graph.normalize(tf.constant(lines)).numpy().tolist() == TextNormalizer(*casing)(lines)


def test_pairs_are_cut_as_in_fine_tuning() -> None:
    graph = GraphTokenizer(TOKENS, *Casing(), 12)
    lengths = [(a, b) for a in (0, 1, 3, 9, 12) for b in (0, 1, 4, 5, 13)]
    word = next(token for token in TOKENS if token.isascii() and token.isalpha())
    texts = [[" ".join([word] * count) for count in pair] for pair in lengths]
    rows = graph.rows(*(tf.constant(column) for column in zip(*texts, strict=True)))
    expected = encode(WordpieceTokenizer(TOKENS), [(first, second) for first, second in texts], 12)
    for name, ours in expected._asdict().items():
        np.testing.assert_array_equal(rows[name], ours, name)


_STRANGER = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
for size in (1, len(texts)):  # any batch, any length
    states = model.signatures["states"](text=tf.constant(texts[:size]))
replaced = model.signatures["replaced"](text=tf.constant(texts))
pair = model.signatures["pair_states"](text=tf.constant(texts[:1]), text_pair=tf.constant(texts[1:2]))
default = model.signatures["serving_default"](text=tf.constant(texts))
assert np.array_equal(default["states"], states["states"])
np.savez(sys.argv[3], states=states["states"], mask=states["mask"], tokens=states["tokens"].numpy().astype("U"),
         probabilities=replaced["probabilities"], pair=pair["sentence"])
assert "electra_tf2" not in sys.modules
"""


_TASKS: dict[str, Any] = {
    "mnli": (dense(3), {"labels": ["contradiction", "entailment", "neutral"]}),
    "sts": (dense(1), {}),
    "sst": (dense(2), {"labels": ["0", "1"]}),
}


class Saved(NamedTuple):
    """A model, the folder that its SavedModel was written to, what the conversion said of it, and what is loaded."""

    model: StoredModel
    folder: Path
    written: Written
    loaded: Any


def save(folder: Path, model: StoredModel) -> Saved:
    written = saved_model.convert(folder, model, Options())
    return Saved(model, folder, written, saved_model.load_saved(folder / "1"))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A pre-trained model, which takes strings."""
    return save(tmp_path_factory.mktemp("encoder"), support.with_crc_weights())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A fine-tuned model of three tasks, which takes strings."""
    return save(tmp_path_factory.mktemp("classifier"), support.fine_tuned_together(_TASKS, max_seq_length=20))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A fine-tuned model that takes ids, in a folder whose name TensorFlow would take for a pattern."""
    tags = {"labels": ["DT", "NN", "VB"]}
    return save(tmp_path_factory.mktemp("tagger") / "run [1]", support.fine_tuned("pos", dense(3), tags))


def test_it_loads_where_none_of_our_code_is_and_says_the_same(encoder: Saved, tmp_path: Path) -> None:
    model = electra.Model(encoder.model)
    texts = ["the man went to the house", "Some OTHER text, with Café.", "of"]
    command = [
        sys.executable,
        "-c",
        _STRANGER,
        str(encoder.folder / "1"),
        json.dumps(texts),
        str(tmp_path / "said.npz"),
    ]
    # TF_USE_LEGACY_KERAS: TensorFlow imports no Keras 3, which a SavedModel does not need either.
    environment = {"PATH": "/usr/bin", "HOME": str(tmp_path), "TF_USE_LEGACY_KERAS": "1"}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    with np.load(tmp_path / "said.npz") as said:
        for row, states in enumerate(model.states(texts)):
            length = len(states.tokens)
            assert said["mask"][row].sum() == length
            assert said["tokens"][row, :length].tolist() == states.tokens
            np.testing.assert_allclose(said["states"][row, :length], states.vectors, atol=1e-5)
            expected = [token.probability for token in model.replaced(texts[row])]
            np.testing.assert_allclose(said["probabilities"][row, 1 : length - 1], expected, atol=1e-5)
        [pair] = model.states([(texts[0], texts[1])])
        np.testing.assert_allclose(said["pair"][0], pair.sentence, atol=1e-5)


def test_classes_and_values_are_those_of_predict(classifier: Saved) -> None:
    predictor = Predictor(classifier.model, classifier.model.tokenizer())
    written = classifier.written
    assert written.difference < 1e-5 and "mnli, sts, sst" in written.summary
    loaded = classifier.loaded
    pairs = [("the man", "went to the house"), ("a b c " * 40, "of the " * 30)]
    first, second = (tf.constant(column) for column in zip(*pairs, strict=True))
    classes = loaded.signatures["mnli"](text=first, text_pair=second)
    for row, answer in enumerate(predictor(pairs, "mnli")):
        assert classes["label"][row].numpy().decode() == answer["label"]
        names = [name.decode() for name in classes["labels"][row].numpy()]
        for name, probability in zip(names, classes["probabilities"][row], strict=True):
            assert abs(answer["probabilities"][name] - probability) < 1e-5
    values = loaded.signatures["sts"](text=first, text_pair=second)["value"]
    np.testing.assert_allclose(values, [answer["label"] for answer in predictor(pairs, "sts")], atol=1e-4)
    kernel = next(variable for variable in predictor.model.trainable_variables if "sst/dense/kernel" in variable.name)
    kernel.assign_add(tf.eye(*kernel.shape))
    assert saved_model.difference_of_answers(predictor, loaded, pairs) > 1e-4  # every number is compared


def _embedding_model(pooling: str, projection: int) -> StoredModel:
    head = dense(projection, "projection") if projection else {}
    tasks: dict[str, Any] = {"sentence_embedding": (head, {})}
    return support.fine_tuned_together(tasks, classifier_pooling=pooling, embedding_projection=projection)


def _sentence_transformers_folder(folder: Path) -> StoredModel:
    sentence_transformers.write_sentence_transformer(folder, support.tiny())
    return read_model(str(folder))


@pytest.mark.parametrize("kind", ["mean, projected", "cls", "of sentence-transformers"])
def test_vectors_are_those_of_embed(kind: str, tmp_path: Path) -> None:
    if kind == "mean, projected":
        model = _embedding_model("mean", 16)
    elif kind == "cls":
        model = _embedding_model("cls", 0)
    else:
        model = _sentence_transformers_folder(tmp_path / "theirs")
    saved = save(tmp_path / "saved", model)
    assert saved.written.difference < 1e-5
    texts = ["the man went to the house", "of"]
    theirs = saved.loaded.signatures["states"](text=tf.constant(texts))["sentence"]
    np.testing.assert_allclose(theirs, electra.Model(model).embed(texts), atol=1e-5)


def with_changed_output(saved: Saved, signature: str, output: str) -> types.SimpleNamespace:
    """The loaded SavedModel, but for one output of a signature."""
    run = saved.loaded.signatures[signature]

    def changed(**columns: tf.Tensor) -> dict[str, tf.Tensor]:
        outputs = dict(run(**columns))
        value = outputs[output]
        outputs[output] = value + tf.cast("x" if value.dtype == tf.string else 1, value.dtype)
        return outputs

    return types.SimpleNamespace(signatures=dict(saved.loaded.signatures) | {signature: changed})


@pytest.mark.parametrize(
    ("signature", "output"),
    [("states", "sentence"), ("pair_states", "tokens"), ("replaced", "probabilities"), ("replaced", "mask")],
)
def test_every_output_of_an_encoder_is_compared(encoder: Saved, signature: str, output: str) -> None:
    assert saved_model.difference_of_states(encoder.model, encoder.loaded) < 1e-5
    loaded = with_changed_output(encoder, signature, output)
    assert saved_model.difference_of_states(encoder.model, loaded) > 1e-2


@pytest.mark.parametrize(("task", "output"), [("mnli", "label"), ("mnli", "labels"), ("sts", "value")])
def test_every_output_of_a_classifier_is_compared(classifier: Saved, task: str, output: str) -> None:
    predictor = Predictor(classifier.model, classifier.model.tokenizer())
    pairs = [("the man", "went to the house")]
    loaded = with_changed_output(classifier, task, output)
    assert saved_model.difference_of_answers(predictor, loaded, pairs) > 1e-2


class _Answering:
    """A predictor that answers with a number."""

    def __init__(self, model: StoredModel, task: str, number: float) -> None:
        predictor = Predictor(model, model.tokenizer())
        self.tasks = [known for known in predictor.tasks if known.name == task]
        self.number = number

    def __call__(self, texts: Any, name: str) -> list[dict[str, Any]]:
        return [{"label": self.number} for _ in texts]


def test_values_on_a_large_scale_may_differ_by_a_rounding_of_float32(classifier: Saved) -> None:
    """A step of float32 near 500 is 3e-5."""
    value = np.float32(500)
    answering: Any = _Answering(classifier.model, "sts", float(np.nextafter(value, np.float32(501))))
    loaded = types.SimpleNamespace(signatures={"sts": lambda **columns: {"value": tf.constant([value])}})
    assert 0 < saved_model.difference_of_answers(answering, loaded, [("a", "b")]) < 1e-6
    loaded = types.SimpleNamespace(signatures={"sts": lambda **columns: {"value": tf.constant([value + 1])}})
    assert saved_model.difference_of_answers(answering, loaded, [("a", "b")]) > 1e-3


def test_other_heads_take_ids(tagger: Saved) -> None:
    assert tagger.written.difference < 1e-5
    facts = json.loads((tagger.folder / "model.json").read_text())
    assert facts["outputs"] == ["pos.logits"] and (tagger.folder / "vocab.txt").is_file()
    assert "- `1`, a SavedModel for TensorFlow: converted from" in (tagger.folder / "README.md").read_text()
    assert facts["tasks"]["pos"]["labels"] == ["DT", "NN", "VB"] and facts["inputs"][0] == "input_ids"


@pytest.mark.parametrize("kind", ["encoder", "classifier", "tagger"])
def test_no_texts_at_all_give_no_rows(kind: str, request: pytest.FixtureRequest) -> None:
    """As a batch of a server may hold none. Every signature answers with its usual shapes."""
    for signature in request.getfixturevalue(kind).loaded.signatures.values():
        inputs = {}
        for name, spec in signature.structured_input_signature[1].items():
            shape = [0] if spec.dtype == tf.string else [0, 7]
            inputs[name] = tf.zeros(shape, spec.dtype)
        for output in signature(**inputs).values():
            assert output.shape[0] == 0
