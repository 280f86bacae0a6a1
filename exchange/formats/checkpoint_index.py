"""Names and shapes of the variables in a TensorFlow checkpoint, read from its .index without TensorFlow.

exchange.formats.folders tells configurations the sizes of the original's checkpoints from here, so that a wrong hparam
still fails in a fraction of a second. The file is a sorted table of LevelDB's format (blocks of keys with shared
prefixes, an index block of block positions, a footer of 48 bytes) whose values are TensorFlow's BundleEntryProto
messages.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import is_file, read_bytes, read_text

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types of protocol buffers

Shape = tuple[int, ...]


def find_prefix(path: str | Path) -> str | None:
    """The prefix of the checkpoint at a path: itself a prefix, or in a folder the one that its file `checkpoint` names,
    or the last of those that are there."""
    if is_file(f"{path}.index"):
        return str(path)
    state = Path(path) / "checkpoint"
    if is_file(state):
        named = re.search(r'^model_checkpoint_path: "(.*)"', read_text(state, "checkpoint"), re.MULTILINE)
        prefix = str(Path(path) / named[1]) if named else None  # an absolute name replaces the folder
        if prefix and is_file(f"{prefix}.index"):
            return prefix
    indices = (re.fullmatch(r"(model\.ckpt-(\d+))\.index", file.name) for file in Path(path).glob("model.ckpt-*.index"))
    steps = [(int(match[2]), match[1]) for match in indices if match]
    return str(Path(path) / max(steps)[1]) if steps else None


def shapes_in(prefix: str) -> dict[str, Shape]:
    """Variable -> shape.

    Raises:
      UserError: the index is damaged, or compressed, which TensorFlow does not do.
    """
    path = f"{prefix}.index"
    data = read_bytes(path, "checkpoint")
    try:
        if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
            raise ValueError("its last bytes are not those of an index")
        _, at = _handle(data, len(data) - _FOOTER)  # of the meta-index, which is empty
        (index, size), _ = _handle(data, at)
        found = {}
        for _, block in _entries(data, index, size):
            for key, value in _entries(data, *_handle(block, 0)[0]):
                if key:  # the empty key is the header's
                    found[key.decode()] = _shape(value)
        return found
    except (IndexError, ValueError, struct.error) as error:
        raise UserError(f"{path} cannot be read, it is damaged: {error}") from None


def _entries(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block, which a byte follows that says how it is compressed (0: not).

    A key begins with so many bytes of the last one.
    """
    if data[start + size]:
        raise ValueError("a block is compressed")
    (restarts,) = struct.unpack_from("<I", data, start + size - 4)
    end, at, key = start + size - 4 * (restarts + 1), start, b""
    while at < end:
        shared, at = _varint(data, at)
        own, at = _varint(data, at)
        length, at = _varint(data, at)
        key = key[:shared] + data[at : at + own]
        at += own
        yield key, data[at : at + length]
        at += length


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and where the next thing begins."""
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a message's fields."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        else:
            length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind, 0)
            if kind == _BYTES:
                length, at = _varint(message, at)
            value = message[at : at + length]
            at += length
        yield tag >> 3, value


def _shape(entry: bytes) -> Shape:
    """BundleEntryProto.shape.dim[].size: fields 2, 2 and 1."""
    sizes = []
    for shape in _messages(entry):
        for dimension in _messages(shape):
            sizes.append(next((size for number, size in _fields(dimension) if number == 1), 0))
    return tuple(size for size in sizes if isinstance(size, int))


def _messages(message: bytes) -> list[bytes]:
    """The messages in field 2."""
    return [value for number, value in _fields(message) if number == 2 and isinstance(value, bytes)]
