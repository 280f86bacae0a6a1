"""SavedModels with the tokenizer inside: equal to ours from strings, loaded where none of our code is."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.convert import saved_model
from electra_tf2.corpus.encoding import encode
from electra_tf2.corpus.graph_tokenizer import GraphTokenizer
from electra_tf2.corpus.normalization import TextNormalizer
from electra_tf2.corpus.tokenization import WordpieceTokenizer, undivided
from electra_tf2.formats.huggingface_config import Casing
from electra_tf2.inference.configured import make_network
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


def test_it_loads_where_none_of_our_code_is_and_says_the_same(tmp_path: Path) -> None:
    model = electra.Model(support.with_crc_weights())
    tokenizer = saved_model.tokenizer_of(model.source)
    network = make_network(model.source)
    signatures = saved_model.pretrained_signatures(network, tokenizer)
    folder = saved_model.write_saved_model(tmp_path, signatures, network.trainable_variables, tokenizer)
    assert folder == tmp_path / "1"
    texts = ["the man went to the house", "Some OTHER text, with Café.", "of"]
    command = [sys.executable, "-c", _STRANGER, str(folder), json.dumps(texts), str(tmp_path / "found.npz")]
    subprocess.run(command, check=True, cwd=tmp_path, env={"PATH": "/usr/bin", "HOME": str(tmp_path)})
    with np.load(tmp_path / "found.npz") as found:
        for row, states in enumerate(model.states(texts)):
            length = len(states.tokens)
            assert found["mask"][row].sum() == length
            assert found["tokens"][row, :length].tolist() == states.tokens
            np.testing.assert_allclose(found["states"][row, :length], states.vectors, atol=1e-5)
            expected = [one.probability for one in model.replaced(texts[row])]
            np.testing.assert_allclose(found["probabilities"][row, 1 : length - 1], expected, atol=1e-5)
        [pair] = model.states([(texts[0], texts[1])])
        np.testing.assert_allclose(found["pair"][0], pair.sentence, atol=1e-5)


_SPANS = support.SPANS | dense(1, "answerable")
_JOINT = _SPANS | dense(512, "end_hidden", inputs=256) | dense(1, "end", inputs=512)
_TASKS: dict[str, Any] = {
    "mnli": (dense(3), {"labels": ["contradiction", "entailment", "neutral"]}),
    "sts": (dense(1), {}),
    "pos": (dense(3), {"labels": ["DT", "NN", "VB"]}),
    "squadv1": (_SPANS, {}),
}
_CUT = {"max_seq_length": 20, "max_query_length": 8, "doc_stride": 4, "answerable_uses_start_logits": False}


class _Served:
    """A model in memory, and its signatures out of a SavedModel that was written and loaded."""

    def __init__(self, folder: Path, tasks: dict[str, Any], **hparams: Any) -> None:
        model = support.fine_tuned_together(tasks, **_CUT, **hparams)
        self.predictor = Predictor(model, model.tokenizer())
        tokenizer = saved_model.tokenizer_of(model, self.predictor.config.max_seq_length)
        self.signatures = saved_model.task_signatures(self.predictor, tokenizer)
        variables = self.predictor.model.trainable_variables
        written = saved_model.write_saved_model(folder, self.signatures, variables, tokenizer)
        self.loaded = tf.saved_model.load(str(written))

    def __call__(self, task: str, *columns: Sequence[str]) -> dict[str, np.ndarray]:
        given = {name: tf.constant(column) for name, column in zip(self.signatures[task].inputs, columns, strict=True)}
        return {name: value.numpy() for name, value in self.loaded.signatures[task](**given).items()}

    def difference(self) -> float:
        return saved_model.difference_from_strings(self.predictor, self.signatures, self.loaded)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> _Served:
    return _Served(tmp_path_factory.mktemp("served"), _TASKS, joint_prediction=False)


def test_classes_and_values_are_those_of_predict(served: _Served) -> None:
    pairs = [("the man", "went to the house"), ("a b c " * 40, "of the " * 30)]
    found = served("mnli", *zip(*pairs, strict=True))
    for row, answer in enumerate(served.predictor(pairs, "mnli")):
        assert found["label"][row].decode() == answer["label"]
        names = [name.decode() for name in found["labels"][row]]
        for name, probability in zip(names, found["probabilities"][row], strict=True):
            assert abs(answer["probabilities"][name] - probability) < 1e-5
    values = served("sts", *zip(*pairs, strict=True))["value"]
    np.testing.assert_allclose(values, [answer["label"] for answer in served.predictor(pairs, "sts")], atol=1e-4)


def test_tags_are_those_of_predict(served: _Served) -> None:
    texts = ["the man went to the house", "one", "word " * 20, "odd \u200b\u200b word"]
    found = served("pos", texts)
    for row, (text, answer) in enumerate(zip(texts, served.predictor(texts, "pos"), strict=True)):
        words = [word.decode() for word in found["words"][row] if word]
        assert words == text.split()
        scores = found["probabilities"][row]
        fitting = int((scores > 0).sum())
        assert fitting and (text != texts[2] or fitting < 20)
        fitting = min(fitting, 5)  # of a long text, predict answers from here on in its next window
        tags = [tag.decode() for tag in found["tags"][row][:fitting]]
        assert tags == answer["tags"][:fitting]
        np.testing.assert_allclose(scores[:fitting], answer["probabilities"][:fitting], atol=1e-5)


@pytest.mark.parametrize("joint", [False, True])
def test_spans_are_those_of_predict_also_where_documents_are_cut(joint: bool, served: _Served, tmp_path: Path) -> None:
    if joint:
        served = _Served(tmp_path, {"squadv1": (_JOINT, {})})
    pairs = [("the man ?", "went to the house of ."), ("of ?", "a b c d e")]
    found = served("squadv1", *zip(*pairs, strict=True))
    for row, answer in enumerate(served.predictor(pairs, "squadv1")):
        text = found["answer"][row].decode()
        assert text.replace(" ", "") == answer["nbest"][0]["text"].replace(" ", ""), (text, answer)
        assert 0 < found["probability"][row] <= 1
    found = served("squadv1", ["of ?"], ["whereabouts"])  # a word of several pieces: an answer may be a later one
    assert not found["answer"][0].startswith(b"##")
    assert served.difference() < 1e-5


def test_every_number_is_compared(served: _Served) -> None:
    [*_, bias] = (v for v in served.predictor.model.trainable_variables if "answerable" in v.name)
    bias.assign_add(tf.ones_like(bias))
    assert served.difference() > 0.5
    bias.assign_add(-tf.ones_like(bias))


def test_marks_are_at_the_pieces_that_hold_a_spans_characters() -> None:
    ours, graph = WordpieceTokenizer(TOKENS), GraphTokenizer(TOKENS, True, None, 512)
    texts = ["Some OTHER text, with Café.", "İstanbul 北京 e\u0301e ΟΔΟΣ", "a\u3000b\u200bc unaffable", ""]
    spans = [(np.array([5, 9, 4, 0]), np.array([10, 11, 9, 0])), (np.array([22, 2, 0, 0]), np.array([25, 3, 1, 9]))]
    pieces, marks = graph.marked(tf.constant(texts), [[tf.constant(end, tf.int32) for end in span] for span in spans])
    for row, found in enumerate(ours.located([undivided(text) for text in texts])):
        assert pieces[row].numpy().tolist() == found.ids.tolist()
        for (first, last), mark in zip(spans, marks, strict=True):
            starts, ends = found.spans.T
            expected = (starts < last[row]) & (first[row] < ends)
            assert mark[row].numpy().astype(bool).tolist() == expected.tolist(), texts[row]
