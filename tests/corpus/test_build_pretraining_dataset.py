"""Whole builds: the same records however they are run, stopped or resumed; nothing deleted unasked; clear errors."""

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from electra_tf2.corpus import build as builder
from electra_tf2.corpus import jobs, record_metadata, shards
from electra_tf2.corpus.build import build, run_beam, run_local
from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.jobs import BuildSettings, default_num_shards, make_plan
from electra_tf2.corpus.record_metadata import UNFINISHED_FILE, VOCAB_FILE, read_metadata
from electra_tf2.corpus.records import RecordFormat, read_batches
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.files import writing
from electra_tf2.formats.folders import SHIPPED
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support.corpora import write_corpus
from tests.support.programs import run_program, start_forked

VOCAB = str(golden.CHECKPOINT / "vocab.txt")
LENGTH = 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus")


def settings(corpus, output, **more):
    return BuildSettings(str(corpus), VOCAB, str(output), **({"max_seq_length": LENGTH, "dev_fraction": 0.1} | more))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


@pytest.fixture(scope="module")
def reference(corpus, tmp_path_factory):
    return built(corpus, tmp_path_factory.mktemp("reference") / "records")


def built(corpus, output, **more):
    """The folder, with its records built in this process."""
    build(make_plan(settings(corpus, output, **more)), run_local(1))
    return output


def all_rows(folder, pattern="*.tfrecord*"):
    batches = [
        batch for path in sorted(folder.glob(pattern)) for batch in read_batches(path, RecordFormat(LENGTH, 600))
    ]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


class Killed(BaseException):
    """Stands for the end of the process."""


@contextlib.contextmanager
def killed_at(name, calls=0):
    """The process ends when a function of the builder is called once more than so many times. Yields their count."""
    made, original = [0], getattr(builder, name)

    def stop(*args, **more):
        if made[0] == calls:
            raise Killed
        made[0] += 1
        return original(*args, **more)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(builder, name, stop)
        yield made


def test_records_do_not_depend_on_the_number_of_processes(corpus, reference, tmp_path):
    build(make_plan(settings(corpus, tmp_path / "records")), run_local(2))
    assert contents(tmp_path / "records") == contents(reference)


def test_records_hold_every_token_of_the_corpus_once(corpus, reference):
    tokenizer = WordpieceTokenizer(VOCAB)
    expected = np.zeros(len(tokenizer), np.int64)
    for path in sorted(corpus.iterdir()):
        for block in Corpus(str(corpus)).read(path.name):
            expected += np.bincount(tokenizer.tokenize(block.lines)[0], minlength=len(tokenizer))
    rows = all_rows(reference)
    special = tokenizer.special
    got = np.bincount(rows["input_ids"][rows["input_mask"] == 1], minlength=len(tokenizer))
    got[[special.cls, special.sep]] = expected[[special.cls, special.sep]]
    np.testing.assert_array_equal(got, expected)


def test_metadata_describes_the_records(reference):
    metadata = read_metadata(reference)
    assert metadata is not None
    values = metadata.values
    assert record_metadata.verify(str(reference), VOCAB) == values["train_examples"] + values["dev_examples"]
    assert values["tokens"] == all_rows(reference)["input_mask"].sum()
    assert values["dev_examples"] == len(all_rows(reference, "dev_data*")["input_ids"])
    assert len([name for name in values["shards"] if name.startswith("pretrain_data")]) >= 4
    assert (values["max_seq_length"], values["vocab_size"]) == (LENGTH, 600)
    rows = all_rows(reference, "pretrain_data*")
    counts = np.bincount(rows["input_ids"][rows["input_mask"] == 1])
    shares = np.delete(counts, [0, 2, 3, 4]) / np.delete(counts, [0, 2, 3, 4]).sum()
    assert values["unigram_entropy"] == pytest.approx(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    names = {path.name for path in reference.iterdir()}
    assert names == {*values["shards"], "metadata.json", "pretrain_vocab.txt"}


def test_seed_changes_the_examples_but_not_what_is_held_out(corpus, reference, tmp_path):
    other = built(corpus, tmp_path / "records", seed=1)
    assert contents(other) != contents(reference)
    held_out = [all_rows(folder, "dev_data*") for folder in (reference, other)]
    counts = [np.bincount(rows["input_ids"][rows["input_mask"] == 1], minlength=600)[6:].tolist() for rows in held_out]
    assert counts[0] == counts[1]


def test_beam_builds_the_same_records(corpus, reference, tmp_path):
    pytest.importorskip("apache_beam")
    build(make_plan(settings(corpus, tmp_path / "beam")), run_beam("--runner=DirectRunner"))
    assert contents(tmp_path / "beam") == contents(reference)


def test_missing_beam_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match="pip install"):
        run_beam()


@contextlib.contextmanager
def killed_after(changes):
    """The process ends before it renames or removes one file more than so many. Yields how many it still may."""
    left, replace, unlink = [changes], os.replace, Path.unlink

    def count():
        if not left[0]:
            raise Killed
        left[0] -= 1

    def removed(path, **more):
        if not path.name.endswith(".tmp"):
            count()
        unlink(path, **more)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(writing.os, "replace", lambda *args: (count(), replace(*args)))
        patch.setattr(Path, "unlink", removed)
        yield left


@pytest.mark.parametrize("after", [0, 1, 3, 8, 13, 14, 16, 17, 24, 99])
def test_a_build_killed_at_any_time_leaves_no_records_and_goes_on(corpus, reference, tmp_path, after):
    plan = make_plan(settings(corpus, tmp_path / "records"))
    with killed_after(after) as left:
        build(plan, run_local(1))
    assert (left[0] > 0) == (after == 99)
    if after not in (0, 99):
        with pytest.raises(UserError, match=r"records holds an unfinished build of records \(unfinished\.json\)"):
            read_metadata(tmp_path / "records")
    build(plan, run_local(1))
    assert contents(tmp_path / "records") == contents(reference)


def test_jobs_that_are_done_are_not_done_again(corpus, reference, tmp_path, monkeypatch):
    plan = make_plan(settings(corpus, tmp_path / "records"))
    with killed_at("do_job", 3):
        build(plan, run_local(1))
    done, do_job = list[int](), shards.do_job

    def count(plan, job, **more):
        done.append(job.index)
        do_job(plan, job, **more)

    monkeypatch.setattr(builder, "do_job", count)
    build(plan, run_local(1))
    assert len(done) == len(plan.jobs) - 3
    assert contents(tmp_path / "records") == contents(reference)


def test_killed_process_resumes(corpus, reference, tmp_path):
    """A real SIGKILL in the middle of a build in two processes."""
    script = tmp_path / "killed.py"
    script.write_text("""
import os, signal, sys
from pathlib import Path
from electra_tf2.corpus import build
from electra_tf2.corpus.jobs import BuildSettings, make_plan
def update(self, *done):
    if list(Path(sys.argv[3]).glob("pretrain_data.*.json")):
        os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    build.Progress.update = update
    settings = BuildSettings(*sys.argv[1:], 32, dev_fraction=0.1)
    build.build(make_plan(settings), build.run_local(2))
""")
    output, log = tmp_path / "records", tmp_path / "log"
    process = start_forked([str(script), str(corpus), VOCAB, str(output)], log)
    process.join()
    assert process.exitcode == -signal.SIGKILL, log.read_text()
    assert (output / UNFINISHED_FILE).exists() and not (output / "metadata.json").exists()
    build(make_plan(settings(corpus, output)), run_local(1))
    assert contents(output) == contents(reference)


def test_a_report_that_cannot_be_read_is_told_and_its_part_built_again(corpus, reference, tmp_path):
    plan = make_plan(settings(corpus, tmp_path / "records"))

    def run(plan, jobs):
        run_local(1)(plan, jobs)
        (plan.output / "pretrain_data.tfrecord-1-of-4.json").write_bytes(b"\0")

    with pytest.raises(UserError, match=r"-1-of-4\.json cannot be read, .* run the same command again to go on"):
        build(plan, run)
    build(plan, run_local(1))
    assert contents(tmp_path / "records") == contents(reference)


def test_records_that_are_there_are_moved_aside_and_that_only_with_overwrite(corpus, tmp_path, capsys):
    output = tmp_path / "records"
    output.mkdir()
    output.joinpath("pretrain_data.tfrecord-0-of-1000").write_bytes(b"theirs")
    output.joinpath("notes.txt").write_text("mine")
    plan = make_plan(settings(corpus, output))
    with pytest.raises(UserError, match=r"holds other records .*--overwrite"):
        build(plan, run_local(1))
    assert output.joinpath("pretrain_data.tfrecord-0-of-1000").read_bytes() == b"theirs"
    for number in (1, 2):
        build(plan, run_local(1), overwrite=True)
        assert record_metadata.verify(str(output), VOCAB)
        assert str(tmp_path / f"records.old-{number}") in capsys.readouterr().out
    assert contents(tmp_path / "records.old-1") == {"pretrain_data.tfrecord-0-of-1000": b"theirs"}
    assert contents(tmp_path / "records.old-2") | {"notes.txt": b"mine"} == contents(output)


def edited(path):
    """Letters of a text file exchanged; its size and time are as they were."""
    before = path.stat()
    path.write_text(path.read_text().translate(str.maketrans("eta", "tae")))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_a_build_goes_on_with_the_text_that_is_there(tmp_path):
    corpus, output = write_corpus(tmp_path / "corpus"), tmp_path / "records"
    plan = make_plan(settings(corpus, output))
    with killed_at("do_job", len(plan.jobs) - 1):
        build(plan, run_local(1))
    edited(corpus / "a.txt")
    assert contents(built(corpus, output)) == contents(built(corpus, tmp_path / "anew"))


def test_a_finished_build_is_not_repeated_unless_its_corpus_has_changed(corpus, reference, tmp_path):
    shutil.copytree(corpus, tmp_path / "corpus")
    shutil.copytree(reference, tmp_path / "records")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    built(tmp_path / "corpus", tmp_path / "records")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "records").iterdir()}
    edited(tmp_path / "corpus" / "a.txt")
    with pytest.raises(UserError, match="the corpus has changed since; pass --overwrite"):
        built(tmp_path / "corpus", tmp_path / "records")
    assert contents(tmp_path / "records") == contents(reference)


def test_shards_that_memory_cannot_hold_are_refused(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_SHARD_TEXT_BYTES", 30_000)
    with pytest.raises(
        UserError, match=r"--num-shards 1 makes shards of .* GB of text.*at least \d+ are needed"
    ) as error:
        make_plan(settings(corpus, tmp_path, num_shards=1))
    enough = int(str(error.value).split("at least ")[1].split()[0])
    assert enough > 1 and make_plan(settings(corpus, tmp_path, num_shards=enough)).num_shards == enough


def test_unfinished_build_of_other_flags_or_corpus_is_refused(tmp_path):
    corpus, output = write_corpus(tmp_path / "corpus", 20), tmp_path / "records"
    with killed_at("do_job"):
        built(corpus, output)
    with pytest.raises(UserError, match="--max-seq-length was 32 there and is 64 now"):
        built(corpus, output, max_seq_length=64)
    file = corpus / "a.txt"
    file.write_text(file.read_text() + "more\n")
    with pytest.raises(UserError, match=r"'a\.txt' is not the same"):
        built(corpus, output)
    build(make_plan(settings(corpus, output)), run_local(1), overwrite=True)
    assert record_metadata.verify(str(output), VOCAB)


@pytest.mark.parametrize("processes", [1, 2])
def test_failing_worker_names_the_file(tmp_path, processes):
    corpus = write_corpus(tmp_path / "corpus", 40)
    data = (corpus / "b.txt.gz").read_bytes()
    (corpus / "b.txt.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"b\.txt\.gz' is damaged"):
        build(make_plan(settings(corpus, tmp_path / "records")), run_local(processes))


@pytest.mark.parametrize("more", [{}, {"num_shards": 1}, {"num_shards": 9}, {"blanks_separate_docs": False}])
def test_plan_covers_every_byte_once(corpus, tmp_path, more):
    plan = make_plan(settings(corpus, tmp_path, **more))
    assert [job.index for job in plan.jobs] == list(range(len(plan.jobs)))
    shards = [job.first_shard + index for job in plan.jobs for index in range(job.num_shards)]
    assert shards == list(range(plan.num_shards)) and len(shards) == (more.get("num_shards") or len(shards))
    pieces = sorted(chunk for job in plan.jobs for chunk in job.chunks)
    for path in corpus.iterdir():
        spans = [(piece.start, piece.end) for piece in pieces if piece.name == path.name]
        assert spans[0][0] == 0 and spans[-1][1] == path.stat().st_size
        assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
        if path.suffix != ".gz":
            data = path.read_bytes()
            mark = b"\n" if path.suffix == ".jsonl" else b"\n\n"
            assert all(data[:start].endswith(mark) for start, _ in spans[1:])
    if not more:
        assert len([piece for piece in pieces if piece.name == "a.txt"]) > 1


def test_the_seed_deals_the_corpus_to_the_shards(corpus, tmp_path):
    orders = []
    for seed in (0, 1):
        jobs = make_plan(settings(corpus, tmp_path, seed=seed)).jobs
        orders.append([chunk for job in jobs for chunk in job.chunks])
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])


def test_number_of_shards_follows_the_corpus():
    assert default_num_shards(1000, 128) == 1
    assert default_num_shards(1 << 20, 128) == 4
    assert 10 < default_num_shards(60_000_000, 128) < 20
    assert 500 <= default_num_shards(40_000_000_000, 128) <= 1000
    assert default_num_shards(10**12, 128) > 10_000


@pytest.mark.parametrize(
    ("text", "more", "values"),
    [
        (
            b"some lines of text \xff\xfe are here\n" * 50,
            {},
            {"undecodable_bytes": 100, "undecodable_files": {"a.txt": 100}},
        ),
        (b"a\n\n" * 10, {}, {"train_examples": 10}),
        (b"a\n\n" * 10, {"blanks_separate_docs": False}, {"train_examples": 1}),
        (b"a word\n", {"dev_fraction": 0.1}, {"train_examples": 1, "dev_examples": 0}),  # one cannot be held out
    ],
)
def test_what_a_text_becomes_is_counted(tmp_path, text, more, values):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_bytes(text)
    plan = make_plan(settings(tmp_path / "corpus", tmp_path / "records", **{"dev_fraction": 0.0} | more))
    metadata = build(plan, run_local(1))
    assert metadata.items() >= values.items()


def test_tokens_that_are_unknown_are_counted_aloud(tmp_path):
    """With a vocabulary as Chinese BERT's, whose seventh and eighth tokens are U+2028: no other [UNK] than are said."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2027", "\u2028", "##\u2028", "\u5317", "\u4eac", "##s"]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab), encoding="utf-8")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("\u5317\u4eac\u5929\u6c14\u5929\n\n" * 8, encoding="utf-8")
    words = ["--corpus-dir", tmp_path / "corpus", "--vocab-file", tmp_path / "vocab.txt", "--max-seq-length", 16]
    code, _, err = command(*words, "--output-dir", tmp_path / "records")
    assert code == 0, err
    assert "WARNING: 42.9 % of the tokens are [UNK]" in err and "\u5929 \u6c14" in err and "--limit-alphabet" in err
    values = json.loads((tmp_path / "records" / "metadata.json").read_text())
    assert values["vocab_size"] == 11 and values["unknown_tokens"] == 24
    assert values["unknown_characters"] == {"\u5929": 16, "\u6c14": 8}
    (batch,) = read_batches(next((tmp_path / "records").glob("pretrain_data*")), RecordFormat(16, 11))
    assert batch["input_ids"][0, :8].tolist() == [2, 8, 9, 1, 1, 1, 3, 0]


def test_damaged_records_do_not_pass_verification(reference, tmp_path):
    output = shutil.copytree(reference, tmp_path / "records")
    file = output / "pretrain_data.tfrecord-0-of-4"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match=r"-0-of-4: record \d+ is not as it was written"):
        record_metadata.verify(str(output), VOCAB)
    file.write_bytes(data[:-5])
    with pytest.raises(UserError, match="-0-of-4 is truncated"):
        record_metadata.verify(str(output), VOCAB)
    file.unlink()
    with pytest.raises(UserError, match="-0-of-4 is missing"):
        record_metadata.verify(str(output), VOCAB)


def write_few(tmp_path, documents):
    corpus = write_corpus(tmp_path / "all", 90)
    lines = [line for line in corpus.joinpath("a.txt").read_text().splitlines() if line]
    (tmp_path / "few").mkdir()
    for number in range(documents):
        (tmp_path / "few" / f"{number}.txt").write_text("\n".join(lines[number::documents]) + "\n")


def test_where_no_document_is_held_out_it_is_said(tmp_path, capsys):
    write_few(tmp_path, 1)
    none = built(tmp_path / "few", tmp_path / "none", dev_fraction=0.0)
    metadata = build(make_plan(settings(tmp_path / "few", tmp_path / "records", dev_fraction=0.01)), run_local(1))
    assert "WARNING: --dev-fraction 0.01 holds out none of the documents" in capsys.readouterr().err
    assert metadata["dev_examples"] == 0 < metadata["train_examples"]
    assert not list((tmp_path / "records").glob("dev_*"))
    assert record_metadata.verify(str(tmp_path / "records"), VOCAB) == metadata["train_examples"]
    np.testing.assert_array_equal(all_rows(tmp_path / "records")["input_ids"], all_rows(none)["input_ids"])


@pytest.mark.parametrize("name", ["pretrain_data.tfrecord-2-of-4", "tfrecord-0-of-4.json", "metadata"])
def test_a_full_disk_is_one_line_and_the_build_goes_on_later(corpus, reference, tmp_path, name, monkeypatch):
    plan = make_plan(settings(corpus, tmp_path / "records"))
    replacing = writing.replacing

    @contextlib.contextmanager
    def on_full_disk(path):
        if name in str(path) and str(path).endswith(".json") == (".json" in name or name == "metadata"):
            with writing.writing(path):
                yield Path("/dev/full")
        else:
            with replacing(path) as temporary:
                yield temporary

    with monkeypatch.context() as patch:
        patch.setattr(writing, "replacing", on_full_disk)
        patch.setattr(builder, "replacing", on_full_disk)
        patch.setattr(shards, "replacing", on_full_disk)
        with pytest.raises(UserError, match=r"cannot write .*(No space left|the disk is full)"):
            build(plan, run_local(1))
    build(plan, run_local(1))
    assert contents(tmp_path / "records") == contents(reference)


def test_what_a_killed_build_left_is_removed(corpus, reference, tmp_path):
    plan, output = make_plan(settings(corpus, tmp_path / "records")), tmp_path / "records"
    with killed_at("_finish"):
        build(plan, run_local(1))
    (output / f"dev_part-0.{socket.gethostname()}-4999999.tmp").write_bytes(b"half")
    (output / "pretrain_data.tfrecord-1-of-4.json").write_text("{")  # as after a power cut
    (output / "pretrain_data.tfrecord-2-of-4").write_bytes(b"half")
    build(plan, run_local(1))
    assert contents(output) == contents(reference)


# ---- the command line ----


def command(*words):
    return run_program("build_pretraining_dataset.py", *map(str, words))


def test_the_name_of_a_shipped_model_stands_for_its_vocabulary(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("The chef ate the meal.\n")
    output = tmp_path / "records"
    words = ["--corpus-dir", tmp_path / "corpus", "--output-dir", output, "--num-processes", 1]
    code, _, err = command(*words, "--vocab-file", "electra_mini")
    assert code == 0, err
    assert (output / VOCAB_FILE).read_bytes() == (SHIPPED / "electra_mini" / "vocab.txt").read_bytes()
    code, _, err = command(*words, "--vocab-file", "electra_minni", "--overwrite")
    assert code == 2 and "'electra_minni' does not exist" in err


def test_command_line_builds_and_inspects(corpus, reference, tmp_path):
    output = tmp_path / "records"
    code, out, err = command(
        "--corpus-dir", corpus, "--vocab-file", VOCAB, "--output-dir", output, "--max-seq-length", LENGTH,
        "--num-processes", 1, "--blanks-separate-docs", "True", "--do-lower-case", "--dev-fraction", 0.1,
        "--inspect", 2, "--verify",
    )  # fmt: skip
    assert code == 0, err
    assert contents(output) == contents(reference)
    assert "segment 1: " in out and "verified" in out
    metadata = json.loads((output / "metadata.json").read_text())
    held_out = metadata["dev_examples"]
    share = 100 * held_out / (metadata["train_examples"] + held_out)
    assert f" and {held_out:,} held-out ones ({share:.1f} %), " in out
    assert "note: " not in err
    code, shown, err = command("--output-dir", output, "--inspect", 2)
    assert code == 0, err
    assert shown.splitlines() == [line for line in out.splitlines() if "segment" in line or "example " in line]


def test_another_share_than_was_asked_for_is_explained(tmp_path):
    """One of the two documents is held out: half of them, for an eighth."""
    (tmp_path / "corpus").mkdir()
    number = 0
    while not is_held_out(f"the house {number}", 0.125):
        number += 1
    text = f"the house {number}\n\nthe man and the women went to the house\n"
    (tmp_path / "corpus" / "a.txt").write_text(text)
    words = ["--corpus-dir", tmp_path / "corpus", "--vocab-file", VOCAB, "--output-dir", tmp_path / "records"]
    code, out, err = command(*words, "--max-seq-length", LENGTH, "--dev-fraction", 0.125)
    assert code == 0 and "1 training examples and 1 held-out ones (50.0 %)" in out, out + err
    assert "note: --dev-fraction 0.125 is a share of the documents, which are held out whole" in err


def is_held_out(document, fraction):
    lines = [document.encode(), b""]
    return shards.DocumentSplitter(fraction).split(lines) == ([], lines)


def test_a_build_that_cannot_be_completed_leaves_room_for_another(tmp_path):
    (tmp_path / "corpus").mkdir()
    words = ["--corpus-dir", tmp_path / "corpus", "--vocab-file", VOCAB, "--output-dir", tmp_path / "records"]
    for text, message in ((" \n", "its files are blank"), ("the man went to the house\n", "")):
        (tmp_path / "corpus" / "a.txt").write_text(text)
        code, _, err = command(*words)
        assert bool(code) == bool(message) and message in err


def test_inspecting_shows_as_many_examples_as_are_asked_for(reference, tmp_path, monkeypatch):
    monkeypatch.setattr(record_metadata, "read_batches", functools.partial(read_batches, size=5))
    lines = [line for line in record_metadata.inspect(str(reference), None, 40) if "example " in line]
    assert len(lines) == len(set(lines)) == 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--dev-fraction": "0.7"}, "--dev-fraction must lie between 0 and 0.5, got 0.7"),
        ({"--num-shards": str(10**9)}, "--num-shards 1,000,000,000 is more than this corpus has examples, about"),
        ({"--max-seq-length": "4"}, "--max-seq-length 4 is too short"),
        ({"--packing": "full_sentences", "--compat": "original"}, "not with --packing full_sentences"),
        ({"--corpus-dir": None}, "--corpus-dir is needed"),
        ({"--output-dir": "{tmp}/file"}, "file: a file stands where a folder is needed"),
    ],
)
def test_mistakes_are_answered_with_one_line(corpus, tmp_path, change, message):
    (tmp_path / "file").write_text("")
    words = {"--corpus-dir": corpus, "--vocab-file": VOCAB, "--output-dir": tmp_path / "records"} | change
    words = {name: str(value).format(tmp=tmp_path) for name, value in words.items() if value is not None}
    done = command(*(word for pair in words.items() for word in pair))
    assert done.returncode == 2 and len(done.errors) == 1 and message in done.errors[0], done.stderr
