"""Damages folders of models, files of tasks and configurations; each is taken or refused in one line.

    python -m tests.support.fuzzing [--kind folders] [--cases 1000] [--first 0] [--seed 0]

`--first NUMBER --cases 1` repeats a case. One fails by anything but a UserError, or by 20 seconds.
"""

import argparse
import collections
import contextlib
import copy
import dataclasses
import io
import json
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.formats.readers import read_model
from electra_tf2.util.errors import UserError
from tests.support import finetuning, golden, stored_models
from tests.support.stored_models import write_folder

LIMIT = 20.0  # seconds of the processor
COUNTS = [1, 1, 1, 2]  # of files that are damaged
Case = Callable[[random.Random], object]
STRANGE: list[Any] = [
    None, True, -1, 7, 2**63, 10**5000, -0.5, 1e300, float("nan"), "", "0", "true", "\0", "\ud800", "x" * 5000, "../..",
    "{0", "²", "\u2028", [], [None], [{}], {}, {"": {}}, ["cola", 3], [0.5, 0.25, 0.25], {"a": {"type": []}},
]  # fmt: skip
PIECES = [
    b"", b"\0", b"\n", b"\r\n", b"\t", b'"', b",", b"\xff", b"\xef\xbb\xbf", b"{", b"[" * 100, b"null", b"NaN", b"-1",
    b"1e999", b"9" * 5000, b"\\ud800", "é".encode(), "\u2028".encode(), b"x" * 200,
]  # fmt: skip


def some_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to four bits turned, or pieces cut out, repeated or put in."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice([0, 1, 2, 8, 64, len(changed)]))
        if rng.random() < 0.3 and start < len(changed):
            changed[start] ^= 1 << rng.randrange(8)
        else:
            changed[start:end] = rng.choice([b"", changed[start:end][:4096] * 2, rng.randbytes(8), rng.choice(PIECES)])
    return bytes(changed)


def some_value(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value with one to three places changed: another type, missing, renamed, repeated."""
    changed: Any = [copy.deepcopy(value)]
    for _ in range(rng.choice([1, 1, 2, 3])):
        where, key = changed, 0
        while isinstance(where[key], (dict, list)) and where[key] and rng.random() < 0.85:
            where = where[key]
            key = rng.choice(list(where)) if isinstance(where, dict) else rng.randrange(len(where))
        kind, there = rng.randrange(6), where[key]
        if kind == 0 and isinstance(where, dict):
            del where[key]
        elif kind == 1 and isinstance(where, dict):
            where[rng.choice(["", "a", "\0", f"{key}s", "0"])] = where.pop(key)
        elif kind == 2:
            text = "7" if isinstance(there, int | list | dict) else str(there)  # of huge numbers there is no text
            where[key] = rng.choice([[there], {"a": there}, [there, there], text])
        elif kind == 3 and isinstance(there, list):
            there[:] = rng.choice([there[1:], there * 2, there[::-1], [*there, rng.choice(STRANGE)]])
        else:
            where[key] = copy.deepcopy(rng.choice(STRANGE))
    return changed[0]


def damage_file(rng: random.Random, path: Path) -> None:
    """Changes a file's bytes, lines or JSON, or puts something else in its place."""
    draw, content = rng.random(), path.read_bytes()
    if draw < 0.1:
        path.unlink()
        rng.choice([path.mkdir, lambda: path.symlink_to("nowhere"), lambda: path.write_bytes(b"[]"), lambda: None])()
        return
    lines = [content] if path.suffix == ".json" else content.split(b"\n")
    number = rng.randrange(len(lines))
    if path.suffix in (".json", ".jsonl") and draw < 0.8:
        with contextlib.suppress(ValueError):
            lines[number] = json.dumps(some_value(rng, json.loads(lines[number]))).encode()
    elif path.suffix in (".txt", ".tsv", ".csv") and draw < 0.8:
        lines[number : number + rng.randrange(2)] = rng.choice([[], lines[number : number + 1], [rng.choice(PIECES)]])
    else:
        lines = [some_bytes(rng, content)]
    path.write_bytes(b"\n".join(lines))


def damaged_copy(rng: random.Random, source: Path, target: Path, count: int) -> Path:
    """A copy of a folder, in place of what was there, with some files damaged."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    files = sorted(path for path in target.rglob("*") if path.is_file())
    for path in rng.sample(files, min(count, len(files))):
        damage_file(rng, path)
    return target


def folders(folder: Path) -> Case:
    """Models of every format, through their reader."""
    seeds = [folder / "seeds" / name for name in ("ElectraForPreTraining", "BertForMaskedLM", "ours", "original")]
    for seed in seeds[:2]:
        stored_models.write_crc_directory(seed, seed.name)
    write_folder(seeds[2], stored_models.tiny())
    shutil.copytree(golden.CHECKPOINT, seeds[3])

    return lambda rng: read_model(str(damaged_copy(rng, rng.choice(seeds), folder / "work", rng.choice(COUNTS))))


def tasks(folder: Path) -> Case:
    """Files of built-in tasks, through their readers."""
    seeds = sorted(path for path in finetuning.TASKS.iterdir() if path.is_dir())

    def case(rng: random.Random) -> None:
        name = rng.choice(seeds).name
        damaged_copy(rng, finetuning.TASKS / name, folder / name, rng.choice(COUNTS))
        config = finetuning.config(name, raw_data_dir=str(folder), max_seq_length=128, compat="original")
        task = make_tasks(config, finetuning.tokenizer())[0]
        for split in ("train", *task.evaluation_splits):
            task.inputs(task.load(split))

    return case


def configurations(_: Path) -> Case:
    """Hparams, as every recipe, --hparams and flag gives them: what is taken says what it is, and comes back."""
    classes: list[Any] = [PretrainingConfig, FinetuningConfig]
    defaults = {of: json.loads(of.from_dict({}).to_json()) for of in classes}

    def case(rng: random.Random) -> None:
        config_class, hparams = rng.choice(classes), dict[str, Any]()
        for field in rng.sample(dataclasses.fields(config_class), rng.choice([1, 1, 2, 3, 5, 12])):
            value = rng.choice(field.metadata["choices"] or [defaults[config_class][field.name]])
            if isinstance(value, bool | int | float):
                value = rng.choice([False, True, value] if value in (0, 1) else [0, value // 2, 2 * value, -value])
            hparams[field.name] = some_value(rng, value) if rng.random() < 0.1 else value
        config = config_class.from_dict(hparams)
        if isinstance(config, PretrainingConfig):
            list(config.notes())
        assert config_class.from_dict(json.loads(config.to_json())) == config

    return case


KINDS: dict[str, Callable[[Path], Case]] = {of.__name__: of for of in (folders, tasks, configurations)}


def problem_of(case: Case, rng: random.Random) -> str | None:
    """The error in how a case ended; "" if it was taken, None if it was refused well."""
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            case(rng)
        return ""
    except UserError as error:
        return None if str(error) else "a UserError without a message"
    except (Exception, KeyboardInterrupt):
        return traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=list(KINDS), nargs="+", default=list(KINDS))
    for name, default in (("cases", 1000), ("first", 0), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    wrong = 0
    for kind in given.kind:
        with tempfile.TemporaryDirectory() as folder:
            case, ends = KINDS[kind](Path(folder)), collections.Counter[str]()
            for number in range(given.first, given.first + given.cases):
                problem = problem_of(case, random.Random(f"{kind} {given.seed} {number}"))
                ends["refused" if problem is None else "wrong" if problem else "taken"] += 1
                if problem:
                    print(f"WRONG {kind} {number}: {problem[-1500:]}", flush=True)
        print(f"{kind}: {dict(ends)}", flush=True)
        wrong += ends["wrong"]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
