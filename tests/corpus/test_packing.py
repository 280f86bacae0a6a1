"""Properties of packing: nothing is lost, nothing crosses documents unasked, rows are well formed."""

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from electra_tf2.corpus.build import build, run_local
from electra_tf2.corpus.jobs import BuildSettings, make_plan
from electra_tf2.corpus.packing import ExampleBuilder, SentencePacker, assemble, example_lengths
from electra_tf2.corpus.record_metadata import read_metadata
from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.shards import DocumentSplitter
from tests.support import golden
from tests.support.finetuning import write_lines

VOCAB = golden.CHECKPOINT / "vocab.txt"
TOKENS = VOCAB.read_text(encoding="utf-8").split("\n")
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")
FIRST = 100  # number of the first token
DOCUMENTS = st.lists(st.lists(st.integers(0, 20), max_size=4), min_size=1, max_size=6)
LONG_DOCUMENTS = st.lists(st.lists(st.integers(0, 90), max_size=12), max_size=8)
CUTS = st.lists(st.integers(0, 99), max_size=4)


def feed(packer, documents, cuts=()):
    """Spans of documents given as lengths of lines, in several calls; every token is numbered."""
    lengths = [size for document in documents for size in [*document, 0]]
    ends = [end for document in documents for end in [*[False] * len(document), True]]
    tokens = np.arange(FIRST, FIRST + sum(lengths), dtype=np.int32)
    borders = sorted([0, *(cut % (len(lengths) + 1) for cut in cuts), len(lengths)])
    spans, at = [], 0
    for first, last in itertools.pairwise(borders):
        size = sum(lengths[first:last])
        spans.append(packer.add(tokens[at : at + size], lengths[first:last], ends[first:last]))
        at += size
    return [*spans, packer.finish()]


def rows_of(documents, max_length, seed=0, cuts=(), original=False):
    """The rows of examples packed as ELECTRA does, and the sum of their lengths."""
    spans = feed(ExampleBuilder(max_length, random.Random(seed), original), documents, cuts)
    rows = [assemble(part, max_length, CLS, SEP) for part in spans]
    return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)], sum(example_lengths(p).sum() for p in spans)


@given(LONG_DOCUMENTS, st.integers(5, 64), st.integers(0, 99), CUTS)
@settings(deadline=None)
def test_every_token_once_in_order_and_documents_apart(documents, max_length, seed, cuts):
    (ids, mask, segments), total = rows_of(documents, max_length, seed, cuts)
    document_of = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    seen = [np.zeros([0], int)]
    for row, real, segment in zip(ids, mask, segments, strict=True):
        size = int(real.sum())
        assert 3 <= size <= max_length and real[:size].all()
        assert row[0] == CLS and row[size - 1] == SEP
        seps = np.flatnonzero(row[:size] == SEP)
        assert len(seps) == 1 + segment.any()
        assert (segment[: seps[0] + 1] == 0).all() and (segment[seps[0] + 1 : size] == 1).all()
        assert not row[size:].any() and not segment[size:].any()
        text = row[:size][(row[:size] != CLS) & (row[:size] != SEP)] - FIRST
        assert len(set(document_of[text])) == 1
        seen.append(text)
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(len(document_of)))
    assert total == mask.sum()


@given(LONG_DOCUMENTS, st.integers(5, 64), st.integers(0, 99), CUTS, st.booleans())
@settings(deadline=None)
def test_examples_do_not_depend_on_how_lines_arrive(documents, max_length, seed, cuts, original):
    whole, _ = rows_of(documents, max_length, seed, (), original)
    parts, _ = rows_of(documents, max_length, seed, cuts, original)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_original_throws_the_rest_of_a_long_line_away():
    assert len(rows_of([[100]], 10, original=True)[0][0]) == 1
    assert len(rows_of([[100]], 10)[0][0]) == 13  # 8 tokens each, and what is left


def test_chances_of_single_segments_and_random_lengths():
    """10 % of examples of short lines have one segment, 5 % a random target length."""
    spans = feed(ExampleBuilder(128, random.Random(5)), [[7] * 200_000])[0]
    assert 0.09 < (spans.second_lengths == 0).mean() < 0.13  # very short ones have no room for a second
    assert 0.035 < (example_lengths(spans) < 120).mean() < 0.06


def sentences(documents, length, separator, cuts):
    """The examples of the other packer, and the documents that hold text, as lists of tokens."""
    spans = feed(SentencePacker(length, separator), documents, cuts)
    examples = [
        part.tokens[start : start + size].tolist()
        for part in spans
        for start, size in zip(part.starts, part.first_lengths, strict=True)
    ]
    numbers = itertools.count(FIRST)
    return examples, [list(itertools.islice(numbers, sum(document))) for document in documents if sum(document)]


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 16), CUTS)
@example([[8], [7, 9]], 10, [3])  # a call ends when [SEP] and all but one token of an example wait
def test_examples_are_full_across_documents(documents, length, cuts):
    examples, texts = sentences(documents, length, SEP, cuts)
    assert [token for packed in examples for token in packed if token != SEP] == list(itertools.chain(*texts))
    ends, room = {text[-1] for text in texts}, length - 2
    for number, packed in enumerate(examples):
        assert packed and packed[0] != SEP and packed[-1] != SEP
        assert all(packed[i - 1] in ends for i, token in enumerate(packed) if token == SEP)
        assert all(packed[i + 1] == SEP for i, token in enumerate(packed[:-1]) if token in ends)
        if number < len(examples) - 1:
            assert len(packed) == room or (len(packed) == room - 1 and packed[-1] in ends)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 16), CUTS)
def test_examples_are_full_within_a_document(documents, length, cuts):
    examples, texts = sentences(documents, length, None, cuts)
    room = length - 2
    assert examples == [text[i : i + room] for text in texts for i in range(0, len(text), room)]


@given(st.lists(st.integers(1, 5), max_size=40), st.integers(1, 7))
@settings(deadline=None)
def test_splitting_keeps_documents_whole_whatever_the_blocks(sizes, step):
    lines = []
    for number, size in enumerate(sizes):
        lines += [b"document %d" % number] * size + [b""]
    splitter = DocumentSplitter(0.4)
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for start in range(0, len(lines), step):
        for side, part in zip(sides, splitter.split(lines[start : start + step]), strict=True):
            side.extend(part)
    assert sides == DocumentSplitter(0.4).split(lines)
    assert not (set(sides[0]) & set(sides[1])) - {b""}
    assert sorted(sides[0] + sides[1]) == sorted(lines)


def test_held_out_share():
    train, dev = DocumentSplitter(0.1).split([line for n in range(5000) for line in (b"document %d" % n, b"")])
    assert len(train) + len(dev) == 10_000 and 800 < len(dev) < 1200


def records(output, name="pretrain_data"):
    metadata = read_metadata(output)
    assert metadata is not None
    files = [output / file for file in metadata.shards if file.startswith(name)]
    batches = [batch for file in files for batch in read_batches(file, metadata.record_format)]
    return {field: np.concatenate([batch[field] for batch in batches]) for field in batches[0]}


@pytest.mark.parametrize("packing", ["full_sentences", "doc_sentences"])
def test_a_build_says_how_it_packed(tmp_path, packing):
    corpus, output = tmp_path / "corpus", tmp_path / "records"
    write_lines(corpus / "a.txt", *(f"{number} " + "b " * 41 + "\n" for number in range(75)))
    plan = make_plan(BuildSettings(str(corpus), str(VOCAB), str(output), 32, num_shards=2, packing=packing))
    metadata = build(plan, run_local(1))
    assert metadata["packing"] == packing and json.loads((output / "metadata.json").read_text()) == metadata
    found = records(output)
    assert not found["segment_ids"].any()
    short = found["input_mask"].sum(1) < 31
    inner = (found["input_ids"][:, 1:] == SEP).sum(1) > 1
    if packing == "full_sentences":
        assert short.sum() <= 2 and inner.any()
    else:
        assert short.sum() == 75 and not inner.any()
