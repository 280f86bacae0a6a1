"""Trains a WordPiece vocabulary on a corpus: the first step, before build_pretraining_dataset.py.

The words are counted and merged by the `tokenizers` package; this program feeds it text normalised exactly as the
tokenizer will normalise it, and fixes what the package leaves to chance (it numbers characters in the order of a hash
table, which decides between merges of equal frequency), so that the same corpus and flags give the same file. The
corpus is read twice, first to choose the alphabet, and never held in memory; the distinct words are.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from corpus.normalization import TextNormalizer, replace_long_words
from corpus.text_files import find_corpus_files, read_blocks
from corpus.vocabulary import SPECIAL_TOKENS, check_vocab, vocab_sha256
from util.errors import UserError
from util.flags import run

_CODE_POINTS = 0x110000
_ASCII_PUNCTUATION = tuple(code for code in range(33, 127) if not chr(code).isalnum())


class VocabularyOptions(NamedTuple):
    """What kind of vocabulary is wanted; the flags of the same names explain them."""

    vocab_size: int = 30522
    do_lower_case: bool = True
    strip_accents: bool = True
    min_frequency: int = 2
    num_unused: int = 0
    limit_alphabet: int = 1000
    round_to_multiple_of_8: bool = False
    text_field: str = "text"


def build_vocab(files: Sequence[Path], options: VocabularyOptions) -> list[str]:
    """The vocabulary of the corpus: special tokens, [unusedN], characters, then pieces from frequent to rare."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    size = options.vocab_size
    if options.round_to_multiple_of_8:
        size += -size % 8
    reserved = [*SPECIAL_TOKENS, *(f"[unused{index}]" for index in range(options.num_unused))]
    first, continuing = choose_alphabet(_count_characters(files, options), options.limit_alphabet, size - len(reserved))
    # Tokens given as special ones are numbered first, in this order. This is what makes the result repeatable.
    fixed = [*reserved, *first, *(f"##{character}" for character in continuing)]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=options.min_frequency,
        special_tokens=fixed,
        initial_alphabet=first,
        limit_alphabet=len(first),
        show_progress=False,
    )
    batches = (block.decode("utf-8").split("\n") for block in _normalized_blocks(files, options, "counting words"))
    tokenizer.train_from_iterator(batches, trainer)
    ids = tokenizer.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)
    if options.round_to_multiple_of_8 and len(vocab) % 8:  # the corpus has too few pieces for the size asked for
        number = options.num_unused
        while len(vocab) % 8:
            vocab.append(f"[unused{number}]")
            number += 1
    check_vocab(vocab, "being built")
    return vocab


class CharacterCounts(NamedTuple):
    """Frequency of each code point, in all and within words after their first character, both [code points]."""

    total: np.ndarray
    continuing: np.ndarray


def choose_alphabet(counts: CharacterCounts, limit: int, room: int) -> tuple[list[str], list[str]]:
    """The most frequent characters, at most limit and as many as fit, and those of them seen within words."""
    codes = np.flatnonzero(counts.total)
    codes = codes[np.lexsort((codes, -counts.total[codes]))][:limit]  # equally frequent ones in code order
    cost = np.cumsum(1 + (counts.continuing[codes] > 0))
    kept = np.sort(codes[cost <= room])
    if len(codes) and not len(kept):
        raise UserError(f"--vocab-size leaves room for {max(room, 0)} tokens beside the special ones; make it larger")
    return [chr(code) for code in kept], [chr(code) for code in kept if counts.continuing[code]]


def _count_characters(files: Sequence[Path], options: VocabularyOptions) -> CharacterCounts:
    counts = CharacterCounts(np.zeros(_CODE_POINTS, np.int64), np.zeros(_CODE_POINTS, np.int64))
    blank = np.zeros(_CODE_POINTS, bool)
    blank[:33] = True
    alone = blank.copy()  # characters that are words by themselves, or none
    alone[list(_ASCII_PUNCTUATION)] = True
    for block in _normalized_blocks(files, options, "counting characters"):
        codes = np.frombuffer(block.decode("utf-8").encode("utf-32-le"), np.uint32)
        inside = codes[1:][~(alone[codes[1:]] | alone[codes[:-1]])]
        for total, seen in zip(counts, (codes[~blank[codes]], inside), strict=True):
            found = np.bincount(seen)
            total[: len(found)] += found
    if not counts.total.any():
        raise UserError(f"the corpus holds no text: {len(files)} files with nothing but white space")
    return counts


def _normalized_blocks(files: Sequence[Path], options: VocabularyOptions, doing: str) -> Iterator[bytes]:
    """Normalised text without overlong words (they become [UNK] whatever the vocabulary), with progress on stderr."""
    normalizer = TextNormalizer(options.do_lower_case, options.strip_accents)
    size = sum(path.stat().st_size for path in files)
    done = undecodable = text_bytes = 0
    started = shown = time.monotonic()
    for path in files:
        for block in read_blocks(path, text_field=options.text_field):
            done += block.file_bytes
            text_bytes += block.raw_bytes
            undecodable += block.undecodable_bytes
            if block.lines:
                yield replace_long_words(normalizer.joined(block.lines), b"")
            now = time.monotonic()
            if now - shown > 5:
                shown = now
                rate = text_bytes / 1e6 / (now - started)
                left = (now - started) * (size - done) / max(done, 1)
                print(f"{doing}: {100 * done / size:.0f}% ({rate:.1f} MB/s, {left:.0f} s left)", file=sys.stderr)
    print(f"{doing}: {text_bytes / 1e6:.1f} MB in {time.monotonic() - started:.1f} s", file=sys.stderr)
    if undecodable:
        print(f"{doing}: left out {undecodable} bytes that are not UTF-8", file=sys.stderr)


def write_vocab(vocab: Sequence[str], path: Path) -> None:
    """Writes the file under a temporary name and renames it, so that no half-written vocabulary is ever seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes("".join(token + "\n" for token in vocab).encode("utf-8"))
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(f"--vocab-file {str(path)!r} cannot be written: {error.strerror}") from None


def _define_flags() -> None:
    flags.DEFINE_string("corpus_dir", None, "Directory of the corpus: .txt, .jsonl, each may be .gz, .bz2, .xz, .zst.")
    flags.DEFINE_string("vocab_file", None, "The vocabulary to write; one token a line.")
    flags.DEFINE_alias("output_file", "vocab_file")
    flags.DEFINE_integer("vocab_size", 30522, "Number of tokens, special ones included.", lower_bound=16)
    flags.DEFINE_boolean("do_lower_case", True, "Lower-case the text (--no-lower-case: keep case).")
    flags.DEFINE_boolean("do_strip_accents", True, "Strip accents when lower-casing (--no-strip-accents: keep them).")
    flags.DEFINE_integer("min_frequency", 2, "Merge only pairs that occur at least this often.", lower_bound=1)
    flags.DEFINE_integer("num_unused", 0, "How many [unusedN] tokens to reserve.", lower_bound=0)
    flags.DEFINE_integer(
        "limit_alphabet", 1000, "Keep this many characters; raise it for Chinese or Japanese.", lower_bound=1
    )
    flags.DEFINE_boolean("round_to_multiple_of_8", False, "Make the size a multiple of 8 (faster on GPU and TPU).")
    flags.DEFINE_string("text_field", "text", "The field of .jsonl files that holds the text.")
    flags.DEFINE_boolean("recursive", False, "Read the directories below --corpus-dir too.")
    flags.DEFINE_boolean("overwrite", False, "Replace the vocabulary if it exists.")


def main() -> None:
    values = flags.FLAGS
    for name in ("corpus_dir", "vocab_file"):
        if not values[name].value:
            raise UserError(f"--{name.replace('_', '-')} is needed")
    path = Path(values.vocab_file)
    if path.is_dir():
        raise UserError(f"--vocab-file {str(path)!r} is a directory; name a file in it")
    if path.exists() and not values.overwrite:
        raise UserError(f"--vocab-file {str(path)!r} exists; pass --overwrite to replace it or name another file")
    options = VocabularyOptions(
        vocab_size=values.vocab_size,
        do_lower_case=values.do_lower_case,
        strip_accents=values.do_strip_accents,
        min_frequency=values.min_frequency,
        num_unused=values.num_unused,
        limit_alphabet=values.limit_alphabet,
        round_to_multiple_of_8=values.round_to_multiple_of_8,
        text_field=values.text_field,
    )
    if options.vocab_size <= len(SPECIAL_TOKENS) + options.num_unused:
        raise UserError(f"--vocab-size {options.vocab_size} is used up by --num-unused {options.num_unused}")
    vocab = build_vocab(find_corpus_files(values.corpus_dir, values.recursive), options)
    write_vocab(vocab, path)
    print(f"wrote {path}: {len(vocab)} tokens, sha256 {vocab_sha256(path)}")
    if len(vocab) < options.vocab_size:
        print(f"the corpus has no more pieces that occur {options.min_frequency} times (--min-frequency)")


if __name__ == "__main__":
    _define_flags()
    run(main, __doc__)
