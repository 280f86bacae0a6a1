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
