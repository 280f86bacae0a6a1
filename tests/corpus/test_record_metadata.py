"""metadata.json is checked with messages that say what differs; records are counted from their headers."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.corpus.record_metadata import Shard, check_metadata, read_metadata, unigram_entropy
from electra_tf2.corpus.records import count_records
from electra_tf2.corpus.vocabulary import SpecialIds, vocab_sha256
from electra_tf2.files.reading import json_sha256
from electra_tf2.util.errors import UserError
from tests.support import golden

VOCAB = str(golden.CHECKPOINT / "vocab.txt")


def write_metadata(folder, **changes):
    values = {
        "format_version": 1, "vocab_sha256": vocab_sha256(VOCAB), "vocab_size": 600, "max_seq_length": 32,
        "do_lower_case": True, "strip_accents": True, "unigram_entropy": 5.5,
        "shards": {"pretrain_data.tfrecord-0-of-1": {"examples": 3, "tokens": 9, "bytes": 99, "sha256": "0" * 64}},
    }  # fmt: skip
    values |= changes
    values["shards_sha256"] = json_sha256(values["shards"])
    folder.joinpath("metadata.json").write_text(json.dumps(values))
    return read_metadata(folder)


def test_matching_metadata_passes(tmp_path):
    assert read_metadata(tmp_path) is None
    metadata = write_metadata(tmp_path)
    check_metadata(metadata, VOCAB, 32, True)
    assert metadata.shards == {"pretrain_data.tfrecord-0-of-1": Shard(3, 9, 99, "0" * 64)}
    assert metadata.unigram_entropy == 5.5
    check_metadata(write_metadata(tmp_path, strip_accents=False), VOCAB, 32, True, False)
    for strip_accents in (True, False):  # cased text keeps them
        check_metadata(write_metadata(tmp_path, do_lower_case=False, strip_accents=strip_accents), VOCAB, 32, False)


@pytest.mark.parametrize("name", ["../pretrain_data.tfrecord-0-of-1", "a/b", "..", ""])
def test_shards_elsewhere_are_not_read(tmp_path, name):
    with pytest.raises(UserError, match=r"'shards' names .*, but only files of its own folder are read"):
        write_metadata(tmp_path, shards={name: {"examples": 3, "tokens": 9, "bytes": 99}})


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"max_seq_length": 64},
            "length 64, but max_seq_length is 32. Give --max-seq-length 64, or build",
        ),
        ({"vocab_sha256": "0" * 64}, "another vocabulary"),
        ({"do_lower_case": False}, "do_lower_case False, but do_lower_case is True"),
        ({"strip_accents": False}, "strip_accents False, but do_strip_accents is None"),
    ],
)
def test_what_differs_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        check_metadata(write_metadata(tmp_path, **changes), VOCAB, 32, True)


DAMAGED = [
    "{", "[]", '{"vocab_sha256": ""}', '{"shards": 3}', '{"shards": {"a": {"examples": null}}}', "[" * 9999,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_metadata_is_named(tmp_path, text):
    tmp_path.joinpath("metadata.json").write_text(text)
    with pytest.raises(UserError, match=r"metadata\.json"):
        read_metadata(tmp_path)


def test_entropy_is_that_of_tokens_that_can_be_masked():
    counts = np.array([9, 2, 7, 7, 0, 2, 4, 0])  # [PAD] [UNK] [CLS] [SEP] [MASK], then words
    assert unigram_entropy(counts, SpecialIds(0, 1, 2, 3, 4)) == pytest.approx(1.5 * math.log(2), abs=1e-12)
    assert unigram_entropy(np.zeros(8, int), SpecialIds(0, 1, 2, 3, 4)) == 0.0


def write_records(path, sizes):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for size in sizes:
            writer.write(b"x" * size)
    return path


@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 1000], [1] * 50])
def test_records_are_counted(tmp_path, sizes):
    assert count_records(write_records(tmp_path / "records", sizes)) == len(sizes)


@pytest.mark.parametrize("cut", [1, 4, 30, 60, 0])
def test_what_is_no_whole_record_file_is_named(tmp_path, cut):
    path = write_records(tmp_path / "records", [20, 30])
    path.write_bytes(path.read_bytes()[:-cut] if cut else b"this is plain text and not a record file\n" * 9)
    with pytest.raises(UserError, match="records is truncated or no TFRecord"):
        count_records(path)
