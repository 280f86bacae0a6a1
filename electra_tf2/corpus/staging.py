"""The folder in which a build works, and how what its units leave there becomes records.

Everything is written into the folder `.unfinished` of the output directory and moved to its final names when all units
are done, metadata.json last; so a killed build leaves nothing that looks like records, and the same command goes on at
the units that have no report yet. Existing records are only replaced with `overwrite`, and not before the new ones are
complete.
"""

import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.corpus.build_plan import DEV_PREFIX, TRAIN_PREFIX, BuildPlan, Unit, describe_difference
from electra_tf2.corpus.record_metadata import (
    METADATA_FILE,
    UNFINISHED_FOLDER,
    VOCAB_FILE,
    Shard,
    read_metadata,
    unigram_entropy,
)
from electra_tf2.corpus.records import RecordFormat, read_batches, record_ends
from electra_tf2.corpus.vocabulary import load_vocab, special_ids, vocab_bytes
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_json, writing
from electra_tf2.util.progress import track
from electra_tf2.util.reading import json_sha256, read_json, sha256_of

_PLAN_FILE = "plan.json"
_SETTINGS = (  # those that metadata.json tells
    *("max_seq_length", "do_lower_case", "strip_accents", "blanks_separate_docs"),
    *("seed", "dev_fraction", "compat", "packing", "other_segments"),
)


class UnitReport(NamedTuple):
    """Report of a finished unit: the files that it wrote, the SHA-256 of each piece that it read, and bytes."""

    files: dict[str, Shard]
    contents: list[str]
    text_bytes: int
    undecodable_bytes: int


class Staging:
    """Folder in which the units of a plan leave what they have built."""

    def __init__(self, plan: BuildPlan):
        self.plan = plan
        self.output = Path(plan.settings.output_dir)
        self.folder = self.output / UNFINISHED_FOLDER

    # The files of a unit.

    def shards(self, unit: Unit) -> list[Path]:
        """Files of a unit's training records."""
        return [self.folder / self.plan.shard_name(unit.first_shard + index) for index in range(unit.num_shards)]

    def dev_part(self, unit: Unit) -> Path:
        """File of a unit's held-out records."""
        return self.folder / f"dev-part-{unit.number}"

    def token_counts(self, unit: Unit) -> Path:
        """File of the number of times that each id occurs in a unit's training records, int64 [V]."""
        return self.folder / f"token-counts-{unit.number}"

    def write_report(self, unit: Unit, report: UnitReport) -> None:
        """Says that the unit is done; what it says must be written before."""
        files = {name: shard._asdict() for name, shard in report.files.items()}
        write_json(self._report_file(unit), report._asdict() | {"files": files})

    def report(self, unit: Unit) -> UnitReport | None:
        """The report of a unit that is done."""
        try:
            values = read_json(self._report_file(unit), "report")
            files = {name: Shard(**shard) for name, shard in values.pop("files").items()}
            whole = all((self.folder / name).stat().st_size == shard.bytes for name, shard in files.items())
            whole = whole and {path.name for path in self.shards(unit)} < files.keys()
            return UnitReport(files, **values) if whole and self.token_counts(unit).exists() else None
        except (UserError, KeyError, TypeError, FileNotFoundError):  # none there, or of another version
            return None

    def _report_file(self, unit: Unit) -> Path:
        return self.folder / f"unit-{unit.number}.json"

    # From the first unit to records.

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second build out of the directory; where directories cannot be locked, nothing happens."""
        with writing(self.output):
            self.output.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.output, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"another process is building in {str(self.output)!r}; wait for it or stop it"
                ) from None
            except OSError:  # a file system without locks
                pass
            yield
        finally:
            os.close(descriptor)

    def contents(self, unit: Unit) -> list[str]:
        """The SHA-256 of each of a unit's pieces, as they are in the corpus now."""
        folder = Path(self.plan.settings.corpus_dir)
        return [sha256_of(folder / piece.name, piece.start, piece.end) for piece in unit.pieces]

    def begin(self, overwrite: bool) -> dict[str, Any] | None:
        """Makes the folder ready for the units; returns the metadata if the records are there already.

        Raises:
          UserError: the output directory holds something else.
        """
        plan = self.plan
        moving = (self.folder / METADATA_FILE).exists()
        begun = read_json(self.folder / _PLAN_FILE, "plan") if (self.folder / _PLAN_FILE).exists() else None
        metadata = None if overwrite or moving else read_metadata(self.output)
        if metadata is not None and metadata.values.get("build_hash") == plan.build_hash:
            for name in metadata.shards:
                metadata.check_shard(name)
            units = track(plan.units, "comparing the corpus with what was built: part", len(plan.units))
            if metadata.values.get("corpus_sha256") not in (None, json_sha256(list(map(self.contents, units)))):
                raise UserError(
                    f"--output-dir {str(self.output)!r} holds records of these flags, but the corpus has changed "
                    "since; pass --overwrite to build them anew, or choose another directory"
                )
            if begun is None or begun.get("build_hash") == plan.build_hash:  # else one with --overwrite can still go on
                self._clear()
            return metadata.values
        if begun is not None and begun.get("build_hash") == plan.build_hash:
            if not (overwrite or begun.get("overwrite") or moving):
                self._check_no_records()
            for left in self.folder.glob("*.tmp"):
                left.unlink()
            return None
        if begun is not None and not overwrite:
            difference = describe_difference(plan.identity, begun.get("identity", {}))
            raise UserError(
                f"--output-dir {str(self.output)!r} holds an unfinished build that cannot go on: {difference}. "
                "Repeat the command that began it, choose another directory, or pass --overwrite to start anew."
            )
        if not overwrite:
            self._check_no_records()
        with writing(self.folder):
            self._clear()
            self.folder.mkdir()
        begun = {"build_hash": plan.build_hash, "identity": plan.identity, "overwrite": overwrite}
        write_json(self.folder / _PLAN_FILE, begun)
        return None

    def todo(self) -> list[Unit]:
        """The units that are not done, or whose text has changed since; none if all that is left is to `publish`."""
        if (self.folder / METADATA_FILE).exists():
            return []
        reports = [(unit, self.report(unit)) for unit in self.plan.units]
        return [unit for unit, report in reports if report is None or report.contents != self.contents(unit)]

    def complete(self) -> None:
        """Joins the held-out parts to few files and writes the metadata, once all units are done."""
        if (self.folder / METADATA_FILE).exists():
            return
        plan, settings = self.plan, self.plan.settings
        vocab = load_vocab(settings.vocab_file)
        reports = [self.report(unit) for unit in plan.units]
        if None in reports:
            file = self._report_file(plan.units[reports.index(None)])
            raise UserError(
                f"{file} cannot be read, though that part of the build is done; run the same command again to go on"
            )
        done = [report for report in reports if report is not None]
        written = {name: shard for report in done for name, shard in report.files.items()}
        files = {name: shard for name, shard in written.items() if name.startswith(TRAIN_PREFIX)}
        train, dev = [*files], [plan.dev_shard_name(number) for number in range(plan.num_dev_shards)]
        with writing(self.folder):
            files |= {name: self._join_dev(written, number) for number, name in enumerate(dev)}
            (self.folder / VOCAB_FILE).write_bytes(vocab_bytes(settings.vocab_file))
        if not Shard.total(files.values()).examples:
            raise self._refusal(f"corpus directory {settings.corpus_dir!r} holds no text: its files are blank")
        if not Shard.total(files[name] for name in train).examples:
            raise self._refusal(f"--dev-fraction {settings.dev_fraction} holds out every document; make it smaller")
        if dev and not Shard.total(files[name] for name in dev).examples:
            if any(piece.again for unit in plan.units for piece in unit.pieces):  # would be trained on as well
                raise self._refusal(
                    f"--dev-fraction {settings.dev_fraction} holds out no document, and records cannot be held out "
                    f"where --mix-alpha {settings.mix_alpha:g} reads text again: make --dev-fraction larger, or mark "
                    "the ends of documents with blank lines"
                )
            before = {name: files[name] for name in train}
            record_format = RecordFormat(settings.max_seq_length, len(vocab))
            with writing(self.folder):  # if killed here, the units whose shards have been cut are built again
                files |= hold_out_records(before, self.folder, dev[0], settings.dev_fraction, record_format)
        shards = {
            name: shard._asdict() | {"sha256": shard.sha256 or sha256_of(self.folder / name)}
            for name, shard in files.items()
        }
        counts = np.zeros([len(vocab)], np.int64)
        for unit in plan.units:
            counts += np.fromfile(self.token_counts(unit), np.int64)
        mixing: dict[str, Any] = {"domain_tokens": settings.domain_tokens} if settings.domain_tokens else {}
        if settings.mix_alpha != 1:
            mixing |= {"mix_alpha": settings.mix_alpha, "source_repeats": plan.repeats}
        metadata = {
            "format_version": 1,
            "build_hash": plan.build_hash,
            "vocab_sha256": plan.identity["vocab_sha256"],
            "vocab_size": len(vocab),
            "builder_version": plan.identity["builder_version"],
            **{name: getattr(settings, name) for name in _SETTINGS},
            **mixing,
            "shards": shards,
            "shards_sha256": json_sha256(shards),
            "corpus_sha256": json_sha256([report.contents for report in done]),
            "train_examples": Shard.total(files[name] for name in train).examples,
            "dev_examples": Shard.total(files[name] for name in dev).examples,
            "tokens": Shard.total(files.values()).tokens,
            "unigram_entropy": unigram_entropy(counts, special_ids(vocab, settings.domain_tokens.values())),
            "text_bytes": sum(report.text_bytes for report in done),
            "undecodable_bytes": sum(report.undecodable_bytes for report in done),
        }
        write_json(self.folder / METADATA_FILE, metadata)

    def publish(self) -> dict[str, Any]:
        """Moves the completed build to its final names. If killed here, the next run goes on here."""
        metadata = read_json(self.folder / METADATA_FILE, "metadata")
        names = [*metadata["shards"], VOCAB_FILE]
        with writing(self.output):
            for path in self._record_files():  # not there without --overwrite, but for what has been moved already
                if path.name not in names or (self.folder / path.name).exists():
                    path.unlink()
            for name in names:
                if (self.folder / name).exists():
                    os.replace(self.folder / name, self.output / name)
            os.replace(self.folder / METADATA_FILE, self.output / METADATA_FILE)
            self._clear()
        return metadata

    def _join_dev(self, written: dict[str, Shard], number: int) -> Shard:
        """Writes a held-out file; TFRecord files can be joined end to end."""
        units, parts = self.plan.units, self.plan.num_dev_shards
        joined = [
            self.dev_part(unit) for unit in units[len(units) * number // parts : len(units) * (number + 1) // parts]
        ]
        with open(self.folder / self.plan.dev_shard_name(number), "wb") as file:
            for path in joined:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
        return Shard.total(written[path.name] for path in joined)

    def _record_files(self) -> list[Path]:
        """Records and metadata in the output directory, whoever made them."""
        patterns = (f"{TRAIN_PREFIX}*", f"{DEV_PREFIX}*", METADATA_FILE, VOCAB_FILE)
        return sorted(path for pattern in patterns for path in self.output.glob(pattern))

    def _check_no_records(self) -> None:
        ours = self._record_files()
        if ours:
            raise UserError(
                f"--output-dir {str(self.output)!r} holds other records ({ours[0].name} and {len(ours) - 1} more "
                "files); choose another directory, or pass --overwrite to replace them"
            )

    def _refusal(self, message: str) -> UserError:
        """The error of a build that no repetition completes; its folder goes, so that another command can begin."""
        self._clear()
        return UserError(message)

    def _clear(self) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)


def hold_out_records(
    train: dict[str, Shard], folder: Path, held_out: str, fraction: float, record_format: RecordFormat
) -> dict[str, Shard]:
    """Moves a fraction of the records of all training files, at least one, to the held-out file.

    They are the last ones of each file, whose order is random. Returns what all these files hold afterwards.
    """
    total = sum(shard.examples for shard in train.values())
    wanted = max(1, round(total * fraction)) if total > 1 else 0
    taken, seen = {}, 0
    with open(folder / held_out, "wb") as target:
        for name, shard in train.items():
            before, seen = seen, seen + shard.examples
            taken[name] = seen * wanted // total - before * wanted // total
            ends = itertools.chain([0], record_ends(folder / name))
            kept_bytes = next(itertools.islice(ends, shard.examples - taken[name], None))
            with open(folder / name, "r+b") as source:
                source.seek(kept_bytes)
                shutil.copyfileobj(source, target)
                source.truncate(kept_bytes)
    batches = read_batches(folder / held_out, record_format)
    lengths = itertools.chain.from_iterable(batch["input_mask"].sum(axis=1).tolist() for batch in batches)
    files = {}
    for name, shard in train.items():
        tokens = sum(itertools.islice(lengths, taken[name]))
        files[name] = Shard(shard.examples - taken[name], shard.tokens - tokens, (folder / name).stat().st_size)
    had, has = Shard.total(train.values()), Shard.total(files.values())
    return files | {held_out: Shard(had.examples - has.examples, had.tokens - has.tokens, had.bytes - has.bytes)}
