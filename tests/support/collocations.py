"""A small corpus with planted collocations, as records: for tests of tables that count in records."""

import json

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.packing import Examples
from electra_tf2.corpus.record_metadata import Shard
from electra_tf2.corpus.records import RecordEncoder, RecordFormat
from electra_tf2.corpus.vocabulary import load_vocab, special_ids, vocab_sha256
from electra_tf2.files.reading import json_sha256, sha256_of
from tests.support import golden

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
TOKENS = load_vocab(VOCAB)
SPECIAL = special_ids(TOKENS)
PIECES = [number for number, token in enumerate(TOKENS) if token.startswith("##")]
WORDS = [number for number, token in enumerate(TOKENS) if not token.startswith(("##", "["))]
LENGTH = 64
FORMAT = RecordFormat(LENGTH, len(TOKENS))
# "new york" and "as soon as" of this corpus; the second word of the latter has two pieces.
PAIR, TRIPLE = (WORDS[50], WORDS[51]), (WORDS[52], WORDS[53], PIECES[0], WORDS[52])


def corpus(rows=200, seed=0):
    """Rows of frequent and rare words by chance, with two collocations planted in them."""
    random = np.random.RandomState(seed)
    shares = 1 / np.arange(1, 41)
    ids = random.choice(WORDS[:40], [rows, LENGTH], p=shares / shares.sum())
    ids = np.where(random.rand(rows, LENGTH) < 0.1, random.choice(PIECES[:3], [rows, LENGTH]), ids)
    for row in ids:
        for planted, start in ((PAIR, random.randint(1, 20)), (TRIPLE, random.randint(30, 50))):
            row[start : start + len(planted) + 1] = [*planted, WORDS[0]]
    ids[:, 0], ids[:, -1] = SPECIAL.cls, SPECIAL.sep
    ids[:, LENGTH // 2 - 8] = SPECIAL.sep
    ids[::7, -9:] = [SPECIAL.sep] + [SPECIAL.pad] * 8
    return ids.astype(np.int32)


def write_corpus(folder, ids, shards=3, **said):
    folder.mkdir(parents=True)
    encoder, listed = RecordEncoder(FORMAT), {}
    for shard, rows in enumerate(np.array_split(ids, shards)):
        real = (rows != SPECIAL.pad).astype(np.uint8)
        name = f"pretrain_data.tfrecord-{shard}-of-{shards}"
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for record in encoder.encode(Examples(rows, real, np.zeros_like(real))):
                writer.write(record)
        listed[name] = Shard(
            len(rows), int(real.sum()), (folder / name).stat().st_size, sha256_of(folder / name)
        )._asdict()
    metadata = {
        "format_version": 1, "vocab_sha256": vocab_sha256(VOCAB), "vocab_size": len(TOKENS),
        "max_seq_length": LENGTH, "do_lower_case": True, "strip_accents": True, "unigram_entropy": 5.0,
        "shards": listed, "shards_sha256": json_sha256(listed),
    } | said  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return str(folder / "pretrain_data.tfrecord*")
