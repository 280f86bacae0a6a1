"""Properties of packing: nothing is lost, nothing crosses documents, rows are well formed."""

import itertools
import random

import hypothesis
import numpy as np
from hypothesis import strategies as st

from electra_tf2.corpus.packing import ExampleBuilder, assemble, example_lengths
from electra_tf2.corpus.shards import DocumentSplitter

CLS, SEP = 1, 2
documents = st.lists(st.lists(st.integers(0, 90), max_size=12), max_size=8)


def feed(document_lengths, max_length, seed, calls=1, original=False):
    """Examples of documents given as lengths of lines; every token is numbered, from 3 on."""
    lengths, ends = [], []
    for document in document_lengths:
        lengths += [*document, 0]
        ends += [False] * len(document) + [True]
    tokens = np.arange(3, 3 + sum(lengths), dtype=np.int32)
    builder = ExampleBuilder(max_length, random.Random(seed), original)
    rows, spans = [], []
    cuts = [len(lengths) * call // calls for call in range(calls + 1)]
    offset = 0
    for first, end in itertools.pairwise(cuts):
        size = sum(lengths[first:end])
        found = builder.add(tokens[offset : offset + size], lengths[first:end], ends[first:end])
        offset += size
        spans.append(found)
        rows.append(assemble(found, max_length, CLS, SEP))
    return [np.concatenate(arrays) for arrays in zip(*rows, strict=True)], spans


@hypothesis.given(documents, st.integers(5, 64), st.integers(0, 99), st.integers(1, 5))
@hypothesis.settings(deadline=None)
def test_every_token_once_in_order_and_documents_apart(document_lengths, max_length, seed, calls):
    (ids, mask, segments), spans = feed(document_lengths, max_length, seed, calls)
    document_of = np.repeat(np.arange(len(document_lengths)), [sum(document) for document in document_lengths])
    seen = []
    for row, real, segment in zip(ids, mask, segments, strict=True):
        size = int(real.sum())
        assert 3 <= size <= max_length and real[:size].all()
        assert row[0] == CLS and row[size - 1] == SEP
        seps = np.flatnonzero(row[:size] == SEP)
        assert len(seps) == 1 + segment.any()
        assert (segment[: seps[0] + 1] == 0).all() and (segment[seps[0] + 1 : size] == 1).all()
        assert not row[size:].any() and not segment[size:].any()
        text = row[:size][(row[:size] != CLS) & (row[:size] != SEP)]
        assert len(set(document_of[text - 3])) == 1
        seen.append(text)
    np.testing.assert_array_equal(np.concatenate([*seen, np.zeros([0], int)]) - 3, np.arange(len(document_of)))
    assert sum(int(example_lengths(found).sum()) for found in spans) == mask.sum()


@hypothesis.given(documents, st.integers(5, 64), st.integers(0, 99), st.booleans())
@hypothesis.settings(deadline=None)
def test_examples_do_not_depend_on_how_lines_arrive(document_lengths, max_length, seed, original):
    whole, _ = feed(document_lengths, max_length, seed, 1, original)
    parts, _ = feed(document_lengths, max_length, seed, 4, original)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_original_throws_the_rest_of_a_long_line_away():
    (_, mask, _), _ = feed([[100]], 10, 0, original=True)
    assert len(mask) == 1
    (_, mask, _), _ = feed([[100]], 10, 0)
    assert len(mask) == 13  # 8 tokens each, and what is left


def test_chances_of_single_segments_and_random_lengths():
    """10 % of examples of short lines have one segment, 5 % a random target length."""
    _, (spans,) = feed([[7] * 200_000], 128, 5)
    single = (spans.second_lengths == 0).mean()
    short = (example_lengths(spans) < 120).mean()
    assert 0.09 < single < 0.13  # very short ones have no room for a second
    assert 0.035 < short < 0.06


@hypothesis.given(st.lists(st.integers(1, 5), max_size=40), st.integers(1, 7))
@hypothesis.settings(deadline=None)
def test_splitting_keeps_documents_whole_whatever_the_blocks(sizes, step):
    lines = []
    for number, size in enumerate(sizes):
        lines += [b"document %d" % number] * size + [b""]
    splitter = DocumentSplitter(0.4)
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for start in range(0, len(lines), step):
        for side, part in zip(sides, splitter.split(lines[start : start + step]), strict=True):
            side.extend(part)
    assert sides == tuple(DocumentSplitter(0.4).split(lines))
    assert not (set(sides[0]) & set(sides[1])) - {b""}
    assert sorted(sides[0] + sides[1]) == sorted(lines)


def test_held_out_share():
    train, dev = DocumentSplitter(0.1).split([line for n in range(5000) for line in (b"document %d" % n, b"")])
    assert len(train) + len(dev) == 10_000 and 800 < len(dev) < 1200
