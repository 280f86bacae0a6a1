"""Random damage to files and values, seeded: bytes, text, JSON, safetensors and whole folders."""

import copy
import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 7, 600, 2**31, 2**63, -(2**63), 10**25, 10**400,
    0.0, -0.5, 0.3, 1.5, 1e300, float("nan"), float("inf"), float("-inf"),
    "", "a", "0", "-1", "true", "{}", "électra", "\0", "a\0b", "\ud800", "x" * 5000, "../..", "a/b", "{0", "%s", "\n",
    "²", "٣", "[MASK]", "\u2028", "\u202f", "😀", "/dev/null", ".", "~",
    [], [1], ["a"], [None], [[]], [{}], {}, {"a": 1}, {"a": None}, {"": {}}, {"0": "a", "1": "b"}, [[[[]]]],
]  # fmt: skip
TOKENS = [
    b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b"\t\t", b'"', b"'", b",", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3",
    b"\xed\xa0\x80", b"{", b"}", b"[", b"]", b"[" * 100, b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"0",
    b"9" * 25, b"9" * 400, b"9" * 5000, b"\\u0000", b"\\ud800", "é".encode(), "😀".encode(), "\u2028".encode(),
    "\u200b".encode(), "²".encode(), b" ", b"#", b"x" * 200,
]  # fmt: skip


def some_bytes(rng: random.Random, content: bytes) -> bytes:
    """The content with one to four changes: bits, pieces cut out, repeated, moved or put in."""
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = rng.randrange(len(changed) + 1)
        end = min(len(changed), start + rng.choice([0, 1, 1, 2, 8, 64, len(changed)]))
        kind = rng.randrange(6)
        if kind == 0 and start < len(changed):
            changed[start] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[start:end]
        elif kind == 2:
            changed[start:start] = changed[start:end][:4096]
        elif kind == 3:
            changed[start:start] = rng.randbytes(rng.choice([1, 2, 8, 100]))
        else:
            changed[start:end] = rng.choice(TOKENS)
    return bytes(changed)


def some_lines(rng: random.Random, content: bytes) -> bytes:
    """Text with one line left out, repeated, moved, emptied, or with one cell changed."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    kind = rng.randrange(7)
    if kind == 0:
        del lines[number]
    elif kind == 1:
        lines.insert(number, lines[number])
    elif kind == 2:
        lines.insert(rng.randrange(len(lines)), lines.pop(number))
    elif kind == 3:
        lines[number] = rng.choice(TOKENS)
    elif kind == 4:
        del lines[number:]
    else:
        separator = rng.choice([b"\t", b" ", b","])
        cells = lines[number].split(separator)
        place = rng.randrange(len(cells))
        cells[place : place + rng.randrange(2)] = [rng.choice(TOKENS)] * rng.randrange(3)
        lines[number] = separator.join(cells)
    return rng.choice([b"\n", b"\n", b"\n", b"\r\n", b"\r"]).join(lines) if rng.random() < 0.1 else b"\n".join(lines)


def some_value(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value with one to three places changed: another type, missing, extra, renamed, repeated."""
    changed = [copy.deepcopy(value)]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        where: Any = changed
        key: Any = 0
        while isinstance(where[key], (dict, list)) and where[key] and rng.random() < 0.85:
            where = where[key]
            key = rng.choice(list(where)) if isinstance(where, dict) else rng.randrange(len(where))
        _change(rng, where, key, value)
    return changed[0]


def _change(rng: random.Random, where: Any, key: Any, whole: Any) -> None:
    kind, value = rng.randrange(8), where[key]
    if kind == 0 and isinstance(where, dict):
        del where[key]
    elif kind == 1 and isinstance(where, dict):
        where[rng.choice(["", "a", "\0", "é", key.upper(), key + "s", "0", "x" * 300])] = where.pop(key)
    elif kind == 2:
        where[key] = rng.choice([[value], {"a": value}, [value, value], str(value)])
    elif kind == 3 and isinstance(value, (int, float)) and not isinstance(value, bool):
        half = 0.5 if isinstance(value, int) and value.bit_length() > 1000 else float(value) + 0.5  # no float is larger
        where[key] = rng.choice([-value, value + 1, value - 1, value * 1000, half, str(value), 0])
    elif kind == 4 and isinstance(value, list):
        value[:] = rng.choice([value[1:], value[:-1], value * 2, value[::-1], [*value, rng.choice(STRANGE)]])
    elif kind == 5 and isinstance(whole, dict) and whole:
        where[key] = copy.deepcopy(rng.choice(list(whole.values())))
    else:
        where[key] = copy.deepcopy(rng.choice(STRANGE))


def some_json(rng: random.Random, content: bytes) -> bytes:
    """JSON of another value, or damaged text."""
    if rng.random() < 0.15:
        return some_bytes(rng, content)
    try:
        value = json.loads(content)
    except ValueError:
        return some_bytes(rng, content)
    return json.dumps(some_value(rng, value)).encode()


def some_json_lines(rng: random.Random, content: bytes) -> bytes:
    """JSON lines, one of them changed."""
    if rng.random() < 0.15:
        return some_lines(rng, content)
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    lines[number] = some_json(rng, lines[number])
    return b"\n".join(lines)


def some_tensors(rng: random.Random, content: bytes) -> bytes:
    """A safetensors file with another header, of the right or of a wrong length, or with damaged bytes."""
    if rng.random() < 0.2:
        return some_bytes(rng, content)
    (size,) = struct.unpack("<Q", content[:8])
    header = some_json(rng, content[8 : 8 + size]) if rng.random() < 0.5 else _entry(rng, content[8 : 8 + size])
    length = rng.choice([0, 1, 2**40, 2**63, len(header) + 1]) if rng.random() < 0.05 else len(header)
    return struct.pack("<Q", length) + header + content[8 + size :]


def _entry(rng: random.Random, header: bytes) -> bytes:
    """A header that is whole, but with other names, types or shapes of the same size."""
    entries = json.loads(header)
    name = rng.choice([name for name in entries if name != "__metadata__"])
    entry, kind = entries[name], rng.randrange(5)
    if kind == 0:
        entries[rng.choice(["", "a", name + ".gamma", name.replace("weight", "bias")])] = entries.pop(name)
    elif kind == 1:
        entry["dtype"] = rng.choice(["I32", "U32", "F32", "F16", "BF16", "F64", "F8_E4M3", "BOOL", "X", 3])
    elif kind == 2:
        entry["shape"] = rng.choice([entry["shape"][::-1], [1, *entry["shape"]], [*entry["shape"], 1], []])
    elif kind == 3:
        other = rng.choice([name for name in entries if name != "__metadata__"])
        entries[name], entries[other] = entries[other], entry
    else:
        total = 1
        for one in entry["shape"]:
            total *= one
        entry["shape"] = rng.choice([[total], [total, 1], [1, total], [2, total // 2], [0], [-1, total]])
    return json.dumps(entries).encode()


_BY_SUFFIX: dict[str, Callable[[random.Random, bytes], bytes]] = {
    ".json": some_json,
    ".jsonl": some_json_lines,
    ".safetensors": some_tensors,
    ".txt": some_lines,
    ".tsv": some_lines,
    ".csv": some_lines,
}


def damage_file(rng: random.Random, path: Path) -> None:
    """Changes a file in the way of its kind, or puts something else in its place."""
    draw = rng.random()
    if draw > 0.1:
        content = path.read_bytes()
        change = _BY_SUFFIX.get(path.suffix, some_bytes)
        if path.suffix == ".txt" and content[:1] == b"{":
            change = some_json
        path.write_bytes((some_bytes if draw < 0.25 else change)(rng, content))
        return
    content = path.read_bytes()
    path.unlink()
    kind = rng.randrange(6)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.write_bytes(rng.choice(TOKENS))
    elif kind == 2:
        path.symlink_to(rng.choice([path.name, "nowhere", "/dev/null", "."]))
    elif kind == 3:
        path.with_name(rng.choice(["a", path.name + ".bak", path.name.upper(), "é" + path.suffix])).write_bytes(content)
    elif kind == 4:
        path.write_bytes(rng.choice([b"", b"[]", b"{}", b"null", b"3", b'"a"', b"\x80\x02}q\x00.", bytes(100)]))


def damage_folder(rng: random.Random, folder: Path) -> str:
    """Changes one or two files below a folder; returns their names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    small = [path for path in paths if path.stat().st_size < 1 << 16]
    names = []
    for path in rng.sample(paths if rng.random() < 0.3 else small or paths, 1 if rng.random() < 0.8 else 2):
        damage_file(rng, path)
        names.append(path.name)
    return ", ".join(names)


def fresh_copy(source: Path, target: Path) -> Path:
    """A copy of a folder in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
