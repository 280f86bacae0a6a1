"""Trains a WordPiece vocabulary on a corpus: the first step, before build_pretraining_dataset.py.

The words are counted and merged by the `tokenizers` package; this program feeds it text normalised exactly as the
tokenizer will normalise it, and fixes what the package leaves to chance (it numbers characters in the order of a hash
table, which decides between merges of equal frequency), so that the same corpus and flags give the same file. The
corpus is read twice, first to choose the alphabet, and never held in memory; the distinct words are.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from electra_tf2.config.flags import run
from electra_tf2.config.hparams import dashed
from electra_tf2.corpus import corpus_reader
from electra_tf2.corpus.corpus_reader import Corpus
from electra_tf2.corpus.normalization import TextNormalizer, replace_long_words
from electra_tf2.corpus.scripts import sample, warnings_of
from electra_tf2.corpus.vocabulary import MAX_TOKENS, SPECIAL_TOKENS, check_vocab, vocab_sha256
from electra_tf2.files.writing import check_new, write_atomically
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, say, warn

_CODE_POINTS = 0x110000
WORTH_A_WARNING = 0.001  # share of characters that get no token


class VocabularyOptions(NamedTuple):
    """Options of the vocabulary. Flags of the same names explain them."""

    vocab_size: int = 30522
    do_lower_case: bool = True
    strip_accents: bool = True
    min_frequency: int = 2
    num_unused: int = 0
    limit_alphabet: int = 1000


def build_vocab(corpus: Corpus, options: VocabularyOptions) -> list[str]:
    """Trains a vocabulary: special tokens, [unusedN], characters, then pieces from frequent to rare."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    reserved = [*SPECIAL_TOKENS]
    reserved += [f"[unused{index}]" for index in range(options.num_unused)]
    for warning in warnings_of(sample(corpus), options.do_lower_case and options.strip_accents):
        warn(warning)
    counts = _count_characters(corpus, options)
    alphabet, continuing = choose_alphabet(counts, options.limit_alphabet, options.vocab_size - len(reserved))
    _warn_of_missing_characters(counts[0], alphabet)
    # The trainer numbers special tokens first, in this order. The rest of its order is then repeatable.
    fixed = [*reserved, *alphabet]
    fixed += [f"##{character}" for character in continuing]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    blocks = _normalized_blocks(corpus, options, "counting words", "merging pairs of pieces")
    tokenizer.train_from_iterator((block.decode("utf-8").split("\n") for block in blocks), trainer)
    ids = tokenizer.get_vocab()
    vocab = sorted(ids, key=ids.__getitem__)
    check_vocab(vocab, "being built")
    return vocab


def _warn_of_missing_characters(counts: np.ndarray, alphabet: list[str]) -> None:
    """Warns if a considerable share of the text is characters without a token. counts: int64 [code points]."""
    missing = counts.copy()
    missing[[ord(character) for character in alphabet]] = 0
    share = missing.sum() / max(counts.sum(), 1)
    if share < WORTH_A_WARNING:
        return
    most_frequent = np.argsort(-missing, kind="stable")[:10]
    common = " ".join(chr(code) for code in most_frequent if missing[code])
    warn(
        f"{np.count_nonzero(missing):,} of {np.count_nonzero(counts):,} characters, "
        f"{100 * share:.1f} % of the text, get no token: words that hold one become [UNK] ({common} ...). "
        "Raise --limit-alphabet to keep more, and --vocab-size"
    )


def choose_alphabet(counts: np.ndarray, limit: int, room: int) -> tuple[list[str], list[str]]:
    """Chooses the most frequent characters.

    Args:
      counts: int64 [2, code points], how often each occurs, and how often within a word after its first character.
      limit: most characters. room: most tokens; a character that occurs within words takes two.

    Returns:
      The characters, and those of them that occur within words.
    """
    total, continuing = counts
    codes = np.flatnonzero(total)
    codes = codes[np.lexsort((codes, -total[codes]))][:limit]  # ties in the order of code points
    tokens_needed = np.cumsum(1 + (continuing[codes] > 0))
    kept = np.sort(codes[tokens_needed <= room])
    if len(codes) and not len(kept):
        raise UserError(f"--vocab-size leaves room for {max(room, 0)} tokens beside the special ones; make it larger")
    return [chr(code) for code in kept], [chr(code) for code in kept if continuing[code]]


def _count_characters(corpus: Corpus, options: VocabularyOptions) -> np.ndarray:
    """Counts characters for `choose_alphabet`."""
    counts = np.zeros([2, _CODE_POINTS], np.int64)
    is_blank = np.arange(_CODE_POINTS) < 33
    ends_word = is_blank.copy()  # blanks and punctuation, which are no part of a longer word
    ends_word[[code for code in range(33, 127) if not chr(code).isalnum()]] = True
    for block in _normalized_blocks(corpus, options, "counting characters"):
        codes = np.frombuffer(block.decode("utf-8").encode("utf-32-le"), np.uint32)
        continues_word = ~(ends_word[codes[1:]] | ends_word[codes[:-1]])
        counts[0] += np.bincount(codes[~is_blank[codes]], minlength=_CODE_POINTS)
        counts[1] += np.bincount(codes[1:][continues_word], minlength=_CODE_POINTS)
    if not counts.any():
        raise UserError(f"corpus directory {corpus.directory!r} holds no text: its files are blank")
    return counts


def _normalized_blocks(corpus: Corpus, options: VocabularyOptions, doing: str, then: str = "") -> Iterator[bytes]:
    """Yields the normalised text. Overlong words are left out, since they become [UNK] with any vocabulary.

    Args:
      doing: what the caller does with it, for the progress. then: what it does next, which is printed at the end.
    """
    normalizer = TextNormalizer(options.do_lower_case, options.strip_accents)
    files = corpus.files()
    file_bytes = 0
    text_bytes = 0
    undecodable = Counter[str]()  # bytes by file
    with Progress(f"{doing}: MB", sum(file.size for file in files) / 1e6, unit="MB") as progress:
        for file in files:
            for block in corpus.read(file.name):
                file_bytes += block.file_bytes
                text_bytes += block.raw_bytes
                undecodable[file.name] += block.undecodable_bytes
                if block.lines:
                    yield replace_long_words(normalizer.joined(block.lines), b"")
                progress.update(file_bytes / 1e6)
    if undecodable.total():
        names = [name for name, count in undecodable.most_common() if count]
        note = corpus_reader.undecodable_note(undecodable.total(), text_bytes, names)
        print(f"{doing}: {note}", file=sys.stderr)
    if then:
        say(then)


def _define_flags() -> None:
    flags.DEFINE_string("corpus_dir", None, "Directory of the corpus: .txt, .jsonl, each may be .gz, .bz2, .xz, .zst.")
    flags.DEFINE_string("vocab_file", None, "The vocabulary to write; one token a line.")
    flags.DEFINE_alias("output_file", "vocab_file")
    flags.DEFINE_integer("vocab_size", 30522, "Number of tokens, special ones included.", 16, MAX_TOKENS)
    flags.DEFINE_boolean("do_lower_case", True, "Lower-case the text (--no-lower-case: keep case).")
    flags.DEFINE_boolean("do_strip_accents", True, "Strip accents when lower-casing (--no-strip-accents: keep them).")
    flags.DEFINE_integer("min_frequency", 2, "Merge only pairs of pieces that occur at least so often.", lower_bound=1)
    flags.DEFINE_integer("num_unused", 0, "Number of [unusedN] tokens to reserve.", lower_bound=0)
    flags.DEFINE_integer("limit_alphabet", 1000, "Characters to keep; more for Chinese or Japanese.", lower_bound=1)
    flags.DEFINE_string("text_field", "text", "The field of .jsonl files that holds the text.")
    flags.DEFINE_boolean("recursive", False, "Read the directories below --corpus-dir too.")
    flags.DEFINE_boolean("overwrite", False, "Replace the vocabulary if it exists.")


def main() -> None:
    values = flags.FLAGS
    for name in ("corpus_dir", "vocab_file"):
        if not values[name].value:
            raise UserError(f"{dashed(name)} is needed")
    path = Path(values.vocab_file)
    check_new("--vocab-file", path, values.overwrite)  # before anything slow
    options_of_flags = {name: values[name].value for name in VocabularyOptions._fields if name in values}
    options = VocabularyOptions(**options_of_flags | {"strip_accents": values.do_strip_accents})
    if options.vocab_size <= len(SPECIAL_TOKENS) + options.num_unused:
        raise UserError(f"--vocab-size {options.vocab_size} is used up by --num-unused {options.num_unused}")
    corpus = Corpus(values.corpus_dir, values.text_field, values.recursive)
    corpus.refuse_inside("--vocab-file", path)  # build-data would read it as text
    vocab = build_vocab(corpus, options)
    write_atomically(path, "".join(token + "\n" for token in vocab))
    print(f"wrote {path}: {len(vocab)} tokens, sha256 {vocab_sha256(path)}")
    if len(vocab) < options.vocab_size:
        print(
            f"of these characters (--limit-alphabet) the corpus has no more pieces that occur "
            f"{options.min_frequency} times (--min-frequency)"
        )


def command() -> None:
    _define_flags()
    run(main, __doc__, goes_on=True)


if __name__ == "__main__":
    command()
