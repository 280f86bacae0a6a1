"""Text that could stand in place of second segments: what may be chosen, by a loop over numbered tokens; records."""

import itertools
import random
from typing import cast

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from electra_tf2.corpus import record_metadata
from electra_tf2.corpus.build import build, run_local
from electra_tf2.corpus.jobs import BuildSettings, make_plan
from electra_tf2.corpus.packing import ExampleBuilder
from electra_tf2.papers.on_losses import records as on_losses
from electra_tf2.papers.on_losses.config import Config
from electra_tf2.papers.on_losses.model import check_records
from electra_tf2.papers.on_losses.records import OtherSegmentFinder
from electra_tf2.pretrain import pretrain_data
from electra_tf2.util.errors import UserError
from tests.corpus.test_packing import records
from tests.support import golden

VOCAB = golden.CHECKPOINT / "vocab.txt"
DOCUMENTS = st.lists(st.lists(st.integers(1, 30), max_size=12), max_size=10)
PAGE = 60
TOKENS = VOCAB.read_text(encoding="utf-8").split("\n")
WORDS = "abcdefghijklmnopqrst"


def found_in(documents, max_length, seed, calls=1, page_tokens=PAGE):
    """(start, first, second, elsewhere, other) of every example, tokens by number; and the same without the others."""
    lengths, ends = [], []
    for document in documents:
        lengths += [*document, 0]
        ends += [False] * len(document) + [True]
    tokens = np.arange(1, 1 + sum(lengths), dtype=np.int32)
    finder = OtherSegmentFinder(
        ExampleBuilder(max_length, random.Random(seed)), max_length, random.Random(1), page_tokens
    )
    cuts = [len(lengths) * call // calls for call in range(calls + 1)]
    spans, at = [], 0
    for first, end in itertools.pairwise(cuts):
        size = sum(lengths[first:end])
        spans.append(finder.add(tokens[at : at + size], lengths[first:end], ends[first:end]))
        at += size
    spans.append(finder.finish())
    rows = []
    for part in spans:
        assert tuple(part.extra) == on_losses.FIELDS
        for start, first, second, *others in zip(*part[1:4], *part.extra.values(), strict=True):
            number = int(part.tokens[start]) if first + second else 0
            rows.append((number, int(first), int(second), *(ids[ids > 0].tolist() for ids in others)))
            assert all((ids > 0).sum() == (np.cumsum(ids == 0) == 0).sum() for ids in others)
    plain = ExampleBuilder(max_length, random.Random(seed)).add(tokens, lengths, ends)
    expected = [(int(plain.tokens[start]), int(a), int(b)) for start, a, b in zip(*plain[1:4], strict=True)]
    return rows, expected


@hypothesis.given(DOCUMENTS, st.integers(8, 40), st.integers(0, 9), st.integers(1, 4))
@hypothesis.settings(deadline=None)
def test_other_segments_are_what_they_are_said_to_be(documents, max_length, seed, calls):
    rows, expected = found_in(documents, max_length, seed, calls)
    assert [row[:3] for row in rows] == expected  # the examples are those of a build without them
    assert rows == found_in(documents, max_length, seed, calls=1)[0]
    number, document_of, later_lines, line_ends = 1, dict[int, int](), set[int](), set[int]()
    for index, document in enumerate(documents):
        for line, length in enumerate(document):
            later_lines |= {number} if line else set()
            document_of |= dict.fromkeys(range(number, number + length), index)
            number += length
            line_ends.add(number - 1)
    for start, first, second, elsewhere, other in rows:
        full, end = first + second + 3 == max_length, start + first + second
        assert second or not elsewhere + other
        for text in filter(None, (elsewhere, other)):
            assert text == list(range(text[0], text[0] + len(text))) and text[0] in later_lines
            assert len({document_of[token] for token in text}) == 1
            assert len(text) == second or (not full and text[-1] in line_ends and len(text) < second)
        if elsewhere:
            assert document_of[elsewhere[0]] == document_of[start]
            assert elsewhere[0] >= end or elsewhere[0] + 2 * second <= start
        if other:
            assert document_of[other[0]] != document_of[start]


def test_what_can_be_found_is_found():
    """Documents of forty lines of four tokens on one page; examples of 16 tokens."""
    rows, _ = found_in([[4] * 40] * 6, 19, seed=0, page_tokens=1000)
    two = [row for row in rows if row[2]]
    assert len(two) > 40 and all(row[3] and row[4] for row in two)
    after = np.mean([row[3][0] > row[0] for row in two])
    assert 0.3 < after < 0.7
    assert len({row[4][0] for row in two}) > 30  # not always the same
    alone, _ = found_in([[4] * 40], 19, seed=0, page_tokens=1000)
    assert not any(row[4] for row in alone) and any(row[3] for row in alone)
    short, _ = found_in([[4] * 3] * 20, 19, seed=0, page_tokens=1000)
    assert not any(row[3] for row in short)


def test_a_document_of_many_pages_needs_little_memory():
    documents = [[5] * 30, [7] * 2000, [5] * 30, [3] * 400]
    finder = OtherSegmentFinder(ExampleBuilder(20, random.Random(0)), 20, random.Random(1), page_tokens=100)
    most, examples, others = 0, 0, 0
    for document in documents:
        for length in [*document, 0]:
            spans = finder.add(np.ones([length], np.int32), [length], [not length])
            most = max(most, sum(map(len, finder._tokens)))
            examples += len(spans.starts)
            others += int((spans.extra["other_document_ids"][:, 0] > 0).sum())
    assert most <= 200 and examples > 700 and others > 0.5 * examples


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two sources of ten documents, whose words say which document they are of."""
    folder = tmp_path_factory.mktemp("text")
    for source, words in (("one", WORDS[:10]), ("two", WORDS[10:])):
        (folder / source).mkdir()
        texts = ["\n".join(f"{word} {word} {word} {word} {word} ." for _ in range(60)) for word in words]
        (folder / source / "a.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return folder


def settings(corpus, output, **more):
    given = {"max_seq_length": 32, "recursive": True, "num_shards": 2, "dev_fraction": 0.2} | more
    return BuildSettings(str(corpus), str(VOCAB), str(output), **given)


def test_records_hold_them_beside_what_they_hold_without(corpus, tmp_path):
    output, plain = tmp_path / "others", tmp_path / "plain"
    build(make_plan(settings(corpus, output, paper="on_losses")), run_local(1))
    build(make_plan(settings(corpus, plain)), run_local(1))
    assert record_metadata.verify(str(output), str(VOCAB)) == record_metadata.verify(str(plain), str(VOCAB))
    shown = list(record_metadata.inspect(str(output), str(VOCAB), 4))
    assert sum(line.startswith("  same_document_ids: ") for line in shown) == 4
    for part in ("pretrain_data", "dev_data"):
        found, without = records(output, part), records(plain, part)
        for field, values in without.items():
            np.testing.assert_array_equal(found[field], values)
        same, other = found["same_document_ids"], found["other_document_ids"]
        assert (same[:, 0] > 0).mean() > 0.5 and (other[:, 0] > 0).mean() > 0.5
        letters = {TOKENS.index(word) for word in WORDS}
        for row in zip(found["input_ids"], same, other, strict=True):
            own, elsewhere, another = ({*ids.tolist()} & letters for ids in row)
            assert len(own) <= 1 and elsewhere <= own and not another & own
    hparams = {"vocab_file": str(VOCAB), "vocab_size": 600, "max_seq_length": 32, "paper": "on_losses"}
    config = Config.from_dict(hparams | {"aux_tasks": ["sdp"]})
    pattern = str(output / "pretrain_data*")
    usable = pretrain_data.find_records(pattern, config, "pretrain_tfrecords")
    check_records(cast(Config, config), usable)
    for batches in (pretrain_data.training_batches(usable, 8, 0, 0), pretrain_data.evaluation_batches(usable, 8)):
        batch = next(iter(batches))
        assert set(on_losses.FIELDS) < set(batch) and batch["other_document_ids"].shape == [8, 32]
    with pytest.raises(UserError, match="no field 'same_document_ids', which electra build-data --paper with"):
        pretrain_data.find_records(str(plain / "pretrain_data*"), config, "x")


def test_documents_without_such_text_are_refused(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("a b c d e f .\n" * 40, encoding="utf-8")
    output = tmp_path / "records"
    build(make_plan(settings(tmp_path / "text", output, paper="on_losses", dev_fraction=0.0)), run_local(1))
    hparams = {"vocab_file": str(VOCAB), "vocab_size": 600, "max_seq_length": 32, "paper": "on_losses"}
    config = Config.from_dict(hparams | {"aux_tasks": ["asp"]})
    with pytest.raises(UserError, match=r"no record has text in other_document_ids.*not told apart \(by blank lines\)"):
        found = pretrain_data.find_records(str(output / "pretrain_data*"), config, "x")
        check_records(cast(Config, config), found)


@pytest.mark.parametrize("changes", [{"packing": "full_sentences"}, {"compat": "original"}])
def test_without_second_segments_there_are_no_others(corpus, tmp_path, changes):
    with pytest.raises(UserError, match="--paper on_losses needs --packing electra"):
        make_plan(settings(corpus, tmp_path, paper="on_losses", **changes))
