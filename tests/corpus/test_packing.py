"""Packing to full length (RoBERTa)."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from electra_tf2.corpus.build import build, run_local
from electra_tf2.corpus.jobs import BuildSettings, make_plan
from electra_tf2.corpus.packing import SentencePacker
from electra_tf2.corpus.record_metadata import read_metadata
from electra_tf2.corpus.records import read_batches
from tests.support import golden
from tests.support.finetuning import write_lines

VOCAB = golden.CHECKPOINT / "vocab.txt"
TOKENS = VOCAB.read_text(encoding="utf-8").split("\n")
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")
DOCUMENTS = st.lists(st.lists(st.integers(0, 20), max_size=4), min_size=1, max_size=6)


def pack(documents, length, separator, calls):
    """The examples of documents whose lines have so many tokens, numbered from 100 on; and the documents' tokens."""
    packer, number = SentencePacker(length, separator), itertools.count(100)
    lines: list[tuple[list[int], bool]] = []
    texts: list[list[int]] = []
    for document in documents:
        texts.append([])
        for size in filter(None, document):
            line = list(itertools.islice(number, size))
            texts[-1] += line
            lines.append((line, False))
        lines.append(([], True))
    borders = [0, *sorted(call % (len(lines) + 1) for call in calls), len(lines)]
    examples = []
    for first, last in itertools.pairwise(borders):
        part = lines[first:last]
        tokens = np.array([token for line, _ in part for token in line], np.int32)
        spans = packer.add(tokens, [len(line) for line, _ in part], [end for _, end in part])
        examples += [spans.tokens[start : start + size].tolist() for start, size in zip(*spans[1:3], strict=True)]
    spans = packer.finish()
    examples += [spans.tokens[start : start + size].tolist() for start, size in zip(*spans[1:3], strict=True)]
    return examples, [text for text in texts if text]


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 16), st.lists(st.integers(0, 99), max_size=3))
@example([[8], [7, 9]], 10, [3])  # a call ends when [SEP] and all but one token of an example wait
def test_examples_are_full_across_documents(documents, length, calls):
    examples, texts = pack(documents, length, SEP, calls)
    assert [token for packed in examples for token in packed if token != SEP] == list(itertools.chain(*texts))
    for number, packed in enumerate(examples):
        assert packed and packed[0] != SEP and packed[-1] != SEP
        ends = {text[-1] for text in texts}
        assert all(packed[i - 1] in ends for i, token in enumerate(packed) if token == SEP)
        inner = [i for i, token in enumerate(packed[:-1]) if token in ends]
        assert all(packed[i + 1] == SEP for i in inner)
        room = length - 2
        if number < len(examples) - 1:
            assert len(packed) == room or (len(packed) == room - 1 and packed[-1] in ends)


@settings(deadline=None)
@given(DOCUMENTS, st.integers(5, 16), st.lists(st.integers(0, 99), max_size=3))
def test_examples_are_full_within_a_document(documents, length, calls):
    examples, texts = pack(documents, length, None, calls)
    room = length - 2
    assert examples == [text[i : i + room] for text in texts for i in range(0, len(text), room)]


def records(output, name="pretrain_data"):
    metadata = read_metadata(output)
    assert metadata is not None
    files = [output / file for file in metadata.shards if file.startswith(name)]
    batches = [batch for file in files for batch in read_batches(file, metadata.record_format)]
    return {field: np.concatenate([batch[field] for batch in batches]) for field in batches[0]}


@pytest.mark.parametrize("packing", ["full_sentences", "doc_sentences"])
def test_a_build_says_how_it_packed(tmp_path, packing):
    output = tmp_path / "records"
    write_lines(tmp_path / "corpus" / "a.txt", *(f"{number} " + "b " * 41 + "\n" for number in range(75)))
    plan = make_plan(
        BuildSettings(str(tmp_path / "corpus"), str(VOCAB), str(output), 32, num_shards=2, packing=packing)
    )
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
