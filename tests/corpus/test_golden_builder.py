"""The packing of examples equals the original's on fixed documents and random seeds."""

import random

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.corpus.packing import ExampleBuilder, Examples, assemble
from electra_tf2.corpus.records import RecordEncoder, RecordFormat
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from tests.support import golden

BUILDER = golden.load_json("builder")
RUNS = pytest.mark.parametrize("run", BUILDER["runs"], ids=lambda run: f"length{run['max_length']}-seed{run['seed']}")


@pytest.fixture(scope="module")
def tokenizer():
    return WordpieceTokenizer(golden.CHECKPOINT / "vocab.txt")


def lines():
    return [line.encode() for document in BUILDER["docs"] for line in [*document, ""]]


def build(tokenizer, run, original, calls):
    """The examples when the documents arrive in several calls."""
    builder = ExampleBuilder(run["max_length"], random.Random(run["seed"]), original)
    rows = []
    for part in np.array_split(np.array(lines(), object), calls):
        tokens, lengths = tokenizer.tokenize(list(part))
        spans = builder.add(tokens, lengths.tolist(), [not line for line in part])
        rows.append(assemble(spans, run["max_length"], tokenizer.special.cls, tokenizer.special.sep))
    return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)]


@RUNS
@pytest.mark.parametrize("calls", [1, 7, 60])
def test_original_examples_in_order(tokenizer, run, calls):
    ids, mask, segments = build(tokenizer, run, original=True, calls=calls)
    assert len(ids) == run["n_examples"]
    for row, expected in enumerate(run["examples"]):
        assert ids[row, : mask[row].sum()].tolist() == expected["ids"]
        assert segments[row].sum() == expected["n_segment1"]
        # Segment 1 is at the end, and padding is zero.
        assert segments[row, : mask[row].sum()].tolist() == sorted(segments[row, : mask[row].sum()].tolist())
        assert not ids[row, mask[row].sum() :].any()


@RUNS
def test_default_keeps_what_the_original_throws_away(tokenizer, run):
    ids, mask, _ = build(tokenizer, run, original=False, calls=3)
    text = ids[(mask == 1) & ~np.isin(ids, [tokenizer.special.cls, tokenizer.special.sep])]
    np.testing.assert_array_equal(text, tokenizer.tokenize(lines())[0])


@RUNS
def test_records_are_the_protos_that_tensorflow_writes(tokenizer, run):
    examples = build(tokenizer, run, original=True, calls=1)
    encoder = RecordEncoder(RecordFormat(run["max_length"], len(tokenizer)))
    records = encoder.encode(Examples(*examples))
    for record, ids, mask, segments in zip(records, *examples, strict=True):
        features = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))
            for name, values in (("input_ids", ids), ("input_mask", mask), ("segment_ids", segments))
        }
        expected = tf.train.Example(features=tf.train.Features(feature=features))
        assert record == expected.SerializeToString(deterministic=True)


def test_statistics_resemble_the_original_on_ordinary_text():
    """On lines shorter than an example, default and original differ by little but the text that is kept."""
    source = np.random.default_rng(0)
    lengths = source.integers(5, 40, 20_000)
    ends = source.random(20_000) < 0.03
    ends[-1] = True
    lengths[ends] = 0
    tokens = source.integers(5, 600, lengths.sum()).astype(np.int32)
    shares = {}
    for original in (True, False):
        spans = ExampleBuilder(128, random.Random(1), original).add(tokens, lengths.tolist(), ends.tolist())
        used = spans.first_lengths.sum() + spans.second_lengths.sum()
        shares[original] = (spans.second_lengths == 0).mean(), used / len(tokens)
    assert abs(shares[True][0] - shares[False][0]) < 0.05
    assert shares[True][1] < 0.95 and shares[False][1] == 1.0
