"""Makes the vocabulary of PMI-masking: the word n-grams of the records that go together more than by chance.

  python build_pmi_vocab.py --data-dir data

reads <data-dir>/pretrain_tfrecords twice, counting n-grams of 1 to 5 words and then collecting the wordpieces of those
that occur often enough, and writes <data-dir>/pmi_vocab.npz, which `mask_unit: pmi` masks as units (PMI-masking, Levine
et al. 2021, section 3). Memory is bounded by what a process may hold and by the n-grams that occur often enough.
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from electra_tf2.corpus.key_counts import Counting, count_records_of, parts_of
from electra_tf2.corpus.pmi_vocabulary import (
    KIND,
    LONGEST,
    SHARES,
    Frequencies,
    NgramVocabulary,
    chosen,
    count_ngrams,
    ngrams_in,
    pieces_of,
    pmi,
    write_vocabulary,
)
from electra_tf2.corpus.records import read_batches
from electra_tf2.corpus.table_inputs import TableInputs, table_inputs
from electra_tf2.util.errors import UserError
from electra_tf2.util.flags import define_table_flags, run
from electra_tf2.util.progress import track


class Options(NamedTuple):
    """The flags of the same names explain them."""

    size: int = 800_000
    min_count: int = 11
    score: str = "pmi"
    num_processes: int = 0
    work_dir: str = ""


def collect(inputs: TableInputs, hashes: np.ndarray) -> list[np.ndarray]:
    """For 2 to LONGEST words: the wordpieces of every n-gram with one of these sorted hashes, int32, one after the
    other."""
    pieces, seen = pieces_of(inputs.vocab_file, inputs.domain_tokens), np.zeros(len(hashes), bool)
    ids: list[list[np.ndarray]] = [[] for _ in SHARES]
    for file in track(inputs.files, "collecting n-grams of file", len(inputs.files)):
        for batch in read_batches(file, inputs.record_format):
            flat = batch["input_ids"].reshape(-1)
            for words, of_length in zip(SHARES, ids, strict=True):
                found = ngrams_in(flat, words, pieces)
                places = np.minimum(np.searchsorted(hashes, found.hashes), len(hashes) - 1)
                new = np.flatnonzero((hashes[places] == found.hashes) & ~seen[places])
                places, first = np.unique(places[new], return_index=True)
                seen[places] = True
                starts, sizes = found.starts[new[first]], (found.ends - found.starts)[new[first]]
                within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
                of_length.append(flat[np.repeat(starts, sizes) + within])  # a copy: slices would hold all batches
    return [np.concatenate([*of_length, np.zeros(0, np.int32)]) for of_length in ids]


def build(inputs: TableInputs, options: Options) -> NgramVocabulary:
    """Counts, scores, and keeps the best of each length."""
    with tempfile.TemporaryDirectory(dir=options.work_dir or None, prefix="pmi_counts.") as folder:
        count_in = partial(count_ngrams, vocab_file=inputs.vocab_file, domain_tokens=inputs.domain_tokens)
        ngrams_of_record = inputs.record_format.length * LONGEST
        counting = Counting(count_in, 1, inputs.record_format, Path(folder), ngrams_of_record)
        totals = count_records_of(inputs.files, counting, options.num_processes)
        hashes, counts = (np.concatenate(column) for column in zip(*parts_of(counting, options.min_count), strict=True))
    order = np.argsort(hashes)
    frequencies = Frequencies(hashes[order], counts[order], totals)
    if not len(order):
        raise UserError(f"--min-count {options.min_count}: no word of the records occurs so often; lower it")
    pieces = pieces_of(inputs.vocab_file)
    found = []
    for words, ids in zip(SHARES, collect(inputs, frequencies.hashes), strict=True):
        starts = np.flatnonzero(~pieces.continues[ids]).reshape(-1, words)
        bounds = np.column_stack([starts, np.append(starts[1:, 0], len(ids))[: len(starts)]])
        scores = pmi(ids, bounds, frequencies, len(pieces.special), squared=options.score == "pmi_freq")
        found.append((ids, bounds, scores))
    kept = chosen([scores for *_, scores in found], options.size)
    return vocabulary_of(found, kept, frequencies, len(pieces.special))


def vocabulary_of(
    found: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]],
    kept: Sequence[np.ndarray],
    frequencies: Frequencies,
    vocab_size: int,
) -> NgramVocabulary:
    """Of each length: (ids, bounds, scores) of what was found, and which of them are kept."""
    pieces = [
        ids[bounds[k, 0] : bounds[k, -1]] for (ids, bounds, _), best in zip(found, kept, strict=True) for k in best
    ]
    vocabulary = NgramVocabulary(
        ids=np.concatenate([*pieces, np.zeros(0, np.int32)]).astype(np.int32),
        ends=np.cumsum([len(one) for one in pieces], dtype=np.int64),
        words=np.repeat(list(SHARES), [len(best) for best in kept]).astype(np.int32),
        scores=np.concatenate([scores[best] for (*_, scores), best in zip(found, kept, strict=True)]).astype(
            np.float32
        ),
        counts=np.zeros(0, np.int64),
    )
    places = np.searchsorted(frequencies.hashes, vocabulary.hashes(vocab_size))
    return vocabulary._replace(counts=frequencies.counts[places])


def examples(vocabulary: NgramVocabulary, tokens: Sequence[str], number: int = 3) -> str:
    """The best of each length, as text."""
    lines = []
    for words in SHARES:
        of_length = np.flatnonzero(vocabulary.words == words)
        best = [vocabulary.ids[vocabulary.ends[k - 1] if k else 0 : vocabulary.ends[k]] for k in of_length[:number]]
        texts = [" ".join(tokens[token] for token in ids).replace(" ##", "") for ids in best]
        lines.append(f"  {len(of_length):,} of {words} words: {', '.join(texts)}")
    return "\n".join(lines)


def _define_flags() -> None:
    define_table_flags(KIND)
    flags.DEFINE_integer(
        "size", 800_000, "Number of n-grams: half of 2 words, a quarter of 3, an eighth of 4 and 5.", 8
    )
    flags.DEFINE_integer("min_count", 11, "Least number of times that an n-gram occurs.", lower_bound=1)
    flags.DEFINE_enum("score", "pmi", ["pmi", "pmi_freq"], "Score: the paper's, or one that prefers frequent n-grams.")


def main() -> None:
    values = flags.FLAGS
    found = table_inputs(KIND, flags.FLAGS)
    options = Options(**{name: values[name].value for name in Options._fields if values[name].value is not None})
    vocabulary = build(found, options)
    write_vocabulary(found.output, vocabulary, found.vocab_file)
    print(f"wrote {found.output}: {len(vocabulary.words):,} n-grams\n{examples(vocabulary, found.tokens)}")


def command() -> None:
    _define_flags()
    run(main, __doc__)


if __name__ == "__main__":
    command()
