"""Packing to full length (RoBERTa), sources mixed by p^alpha (mBART) and marked by tokens (CTRL)."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.build_plan import BuildSettings, make_plan, parse_tokens, repeats
from electra_tf2.corpus.dataset_builder import build, run_local
from electra_tf2.corpus.example_builder import SentencePacker
from electra_tf2.corpus.record_metadata import read_metadata
from electra_tf2.corpus.records import read_batches
from electra_tf2.pretrain import pretrain_data
from electra_tf2.util.errors import UserError
from tests.support import golden

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


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 10**6), min_size=1, max_size=5), st.floats(0, 1))
def test_shares_become_their_power(sizes, alpha):
    found = repeats(sizes, alpha)
    assert min(found.values()) == 1.0 == found[max(sizes, key=lambda name: sizes[name])]
    total = sum(sizes.values())
    powers = {name: (size / total) ** alpha for name, size in sizes.items()}
    mixed = sum(size * found[name] for name, size in sizes.items())
    for name, size in sizes.items():
        assert size * found[name] / mixed == pytest.approx(powers[name] / sum(powers.values()))


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    """The golden vocabulary with two reserved tokens in the place of others."""
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join([*TOKENS[:500], "[unused0]", "[unused1]"]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Source "big" of 60 documents, "small" of 15, with words of their own."""
    folder = tmp_path_factory.mktemp("text")
    for source, count, word in (("big", 60, "b"), ("small", 15, "s")):
        (folder / source).mkdir()
        texts = [f"{word} {number} " + f"{word} " * 40 for number in range(count)]
        (folder / source / "a.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return folder


def built(corpus, vocab, output, **more):
    given = {"max_seq_length": 32, "recursive": True, "num_shards": 2} | more
    return build(make_plan(BuildSettings(str(corpus), str(vocab), str(output), **given)), run_local(1))


def records(output, name="pretrain_data"):
    metadata = read_metadata(output)
    assert metadata is not None
    files = [output / file for file in metadata.shards if file.startswith(name)]
    batches = [batch for file in files for batch in read_batches(file, metadata.record_format)]
    return {field: np.concatenate([batch[field] for batch in batches]) for field in batches[0]}


def test_sources_are_mixed_and_marked(corpus, vocab, tmp_path):
    tokens = {"big": "[unused0]", "small": "[unused1]"}
    plain = built(corpus, vocab, tmp_path / "plain", dev_fraction=0.3)
    assert plain["packing"] == "electra" and not {"mix_alpha", "domain_tokens"} & plain.keys()
    output = tmp_path / "mixed"
    metadata = built(corpus, vocab, output, mix_alpha=0.5, domain_tokens=tokens, dev_fraction=0.3)
    assert metadata["mix_alpha"] == 0.5 and metadata["domain_tokens"] == tokens
    assert metadata["source_repeats"]["big"] == 1 and metadata["source_repeats"]["small"] == pytest.approx(2, rel=0.1)
    words = vocab.read_text(encoding="utf-8").split("\n")
    found, held_out = records(output), records(output, "dev_data")
    for part in (found, held_out):
        ids, real = part["input_ids"], part["input_mask"]
        assert (ids[:, 0] == CLS).all() and set(ids[:, 1]) <= {500, 501}
        for word, mark in (("b", 500), ("s", 501)):
            assert ((ids == words.index(word)).any(1) == (ids[:, 1] == mark)).all()
        assert (ids[np.arange(len(ids)), real.sum(1) - 1] == SEP).all() and not (ids * (1 - real)).any()

    def text(part, word):
        return int((part["input_ids"] == words.index(word)).sum())

    before, kept = records(tmp_path / "plain"), records(tmp_path / "plain", "dev_data")
    assert text(found, "b") == text(before, "b") and text(found, "s") == 2 * text(before, "s")
    assert [text(held_out, word) for word in "bs"] == [text(kept, word) for word in "bs"], "held out once"


@pytest.mark.parametrize("packing", ["full_sentences", "doc_sentences"])
def test_a_build_says_how_it_packed(corpus, vocab, tmp_path, packing):
    metadata = built(corpus, vocab, tmp_path, packing=packing)
    assert metadata["packing"] == packing and json.loads((tmp_path / "metadata.json").read_text()) == metadata
    found = records(tmp_path)
    assert not found["segment_ids"].any()
    hparams = {"data_dir": str(tmp_path), "vocab_file": str(vocab), "vocab_size": 502, "max_seq_length": 32}
    config = PretrainingConfig.from_dict(hparams | {"aux_tasks": ["so"]})
    with pytest.raises(UserError, match=f"records of --packing {packing} have one segment"):
        pretrain_data.find_records(str(tmp_path / "pretrain_data*"), config, "--x")
    (tmp_path / "metadata.json").unlink()
    with pytest.raises(UserError, match="no record has a second segment, and aux_tasks so needs two"):
        pretrain_data.find_records(str(tmp_path / "pretrain_data*"), config, "pretrain_tfrecords")
    short = found["input_mask"].sum(1) < 31
    inner = (found["input_ids"][:, 1:] == SEP).sum(1) > 1
    if packing == "full_sentences":
        assert short.sum() <= 2 and inner.any()
    else:
        assert short.sum() == 75 and not inner.any()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mix_alpha": 1.5}, "--mix-alpha must lie between 0 and 1, got 1.5"),
        ({"domain_tokens": {"big": "[unused0]"}}, "--domain-tokens must name all sources, which are 'big', 'small'"),
        ({"domain_tokens": {"big": "the", "small": "[unused0]"}}, r"the must be an \[unusedN\] of the vocabulary"),
        ({"domain_tokens": {"big": "[unused0]"}, "recursive": False}, "--domain-tokens is for .* give --recursive too"),
        ({"mix_alpha": 0.5, "recursive": False}, "--mix-alpha is for .* give --recursive too"),
        ({"packing": "full_sentences", "compat": "original"}, "not with --packing full_sentences"),
    ],
)
def test_what_cannot_be_built_is_refused(corpus, vocab, tmp_path, more, message):
    with pytest.raises(UserError, match=message):
        built(corpus, vocab, tmp_path, **more)


def test_files_beside_the_folders_cannot_be_marked(vocab, tmp_path):
    (tmp_path / "wiki").mkdir()
    for name in ("wiki/a.txt", "README.txt"):
        (tmp_path / name).write_text("some text\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"files lie beside the folders .* move them into a folder"):
        built(tmp_path, vocab, tmp_path / "records", domain_tokens={"wiki": "[unused0]"})


def test_a_source_is_said_to_be_read_as_often_as_it_is(vocab, tmp_path):
    for source, size in (("big", 30_000), ("small", 10_000)):  # of a piece each, which is read again or not
        (tmp_path / source).mkdir()
        (tmp_path / source / "a.txt").write_text("word " * (size // 5), encoding="utf-8")
    settings = BuildSettings(str(tmp_path), str(vocab), str(tmp_path / "records"), recursive=True, mix_alpha=0.7)
    plan = make_plan(settings)
    assert pytest.approx(1.39, abs=0.01) == 3**0.3 and plan.repeats == {"big": 1.0, "small": 1.0}
    assert sum(len(unit.pieces) for unit in plan.units) == 2


def test_a_tiny_source_is_not_read_for_ever(vocab, tmp_path):
    for source, size in (("books", 300_000), ("notes", 200)):
        (tmp_path / source).mkdir()
        (tmp_path / source / "a.txt").write_text("word " * (size // 5), encoding="utf-8")
    with pytest.raises(UserError, match="--mix-alpha 0 would read folder 'notes' 1,500 times, and 100 are the most"):
        built(tmp_path, vocab, tmp_path / "records", mix_alpha=0.0)


def test_text_that_is_read_again_is_not_held_out_by_records(vocab, tmp_path):
    for source, size in (("big", 4000), ("small", 1000)):
        (tmp_path / "text" / source).mkdir(parents=True)
        (tmp_path / "text" / source / "a.txt").write_text("b " * size, encoding="utf-8")  # a single document
    assert built(tmp_path / "text", vocab, tmp_path / "plain", dev_fraction=0.01)["dev_examples"] > 0
    with pytest.raises(UserError, match=r"cannot be held out where --mix-alpha 0\.5 reads text again"):
        built(tmp_path / "text", vocab, tmp_path / "mixed", dev_fraction=0.01, mix_alpha=0.5)


@pytest.mark.parametrize("given", [["a"], ["a=x", "b=x"], ["a=x", "a=y"], ["=x"]])
def test_domain_tokens_are_pairs(given):
    with pytest.raises(UserError, match="--domain-tokens"):
        parse_tokens(given)
