"""PMI-masking against plain loops: which n-grams are units of masking, and that the vocabulary must fit."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.papers.counts import write_table
from electra_tf2.papers.pmi.tables import KIND, NgramVocabulary
from electra_tf2.pretrain.pretraining_model import make_model
from electra_tf2.util.errors import UserError
from tests.support import training as support
from tests.support.masking import (
    FEW_PIECES,
    FEW_WORDS,
    PIECES,
    SETTINGS,
    TOKENS,
    VOCABULARY,
    check_drawn_units,
    check_rate,
    drawn_of,
    rows_of,
    spans_of,
    unit_of,
    words_of,
)

# Of the few words and pieces, so that sequences hold many of them, which overlap and contain one another.
NGRAMS = [
    [FEW_WORDS[0], FEW_WORDS[1]],
    [FEW_WORDS[1], FEW_PIECES[0], FEW_WORDS[2]],
    [FEW_WORDS[1], FEW_WORDS[2], FEW_WORDS[3]],
    [FEW_WORDS[0], FEW_WORDS[1], FEW_WORDS[2], FEW_WORDS[3]],
    [FEW_WORDS[4], FEW_WORDS[5], FEW_WORDS[4], FEW_WORDS[5], FEW_WORDS[4]],
]


def write_files(folder):
    """Writes the files that runs of the paper read."""
    words = [sum(token not in PIECES for token in ngram) for ngram in NGRAMS]
    vocabulary = NgramVocabulary(
        ids=np.concatenate(NGRAMS).astype(np.int32),
        ends=np.cumsum([len(ngram) for ngram in NGRAMS]),
        words=np.array(words, np.int32),
        scores=np.zeros(len(NGRAMS), np.float32),
        counts=np.ones(len(NGRAMS), np.int64),
    )
    write_table(folder / "pmi_vocab.npz", KIND, str(VOCABULARY), vocabulary._asdict())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pmi")
    write_files(folder)
    return folder


def config_of(folder, length=32, **overrides):
    settings = {"paper": "pmi", "mask_sampling": "without_replacement", "max_seq_length": length}
    settings |= {"mask_prob": 0.3, "max_predictions_per_seq": 12}
    return PretrainingConfig.from_dict(support.hparams(folder, **settings | overrides))


def naive_pmi(row, noise):
    """(start, end) of the units: the longest n-gram at each word, those that overlap by falling noise."""
    words = words_of(row)
    matches = []
    for first in range(len(words)):
        for count in (5, 4, 3, 2):
            if first + count <= len(words):
                start, end = words[first][0], words[first + count - 1][1]
                if list(row[start:end]) in NGRAMS:
                    matches.append((start, end))
                    break
    kept: list[tuple[int, int]] = []
    for start, end in sorted(matches, key=lambda match: -noise[match[0]]):
        if all(end <= other_start or start >= other_end for other_start, other_end in kept):
            kept.append((start, end))
    rest = [(s, e) for s, e in words if not any(start <= s < end for start, end in kept)]
    return sorted([*kept, *rest]), len(kept)


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1))
def test_ngrams_are_found_as_by_plain_loops(folder, seed):
    config, batch = config_of(folder), rows_of(seed, NGRAMS)
    drawn = drawn_of(config, batch, seed % 1000)
    for row, units, noise in zip(batch["input_ids"].numpy(), drawn.units, drawn.unit_noise, strict=True):
        assert spans_of(units) == naive_pmi(row, noise)[0]


@SETTINGS
@hypothesis.given(st.integers(0, 2**31 - 1), st.sampled_from([0.15, 0.3]))
def test_units_are_drawn_as_by_plain_loops(folder, seed, mask_prob):
    check_drawn_units(config_of(folder, mask_prob=mask_prob), rows_of(seed, NGRAMS), seed)


def test_the_effective_rate_is_that_asked_for(folder):
    def make(unit, length, **overrides):
        return config_of(folder, length, mask_unit=unit, **overrides)

    check_rate("pmi", "round", NGRAMS[-1], make)


def test_a_run_masks_ngrams_of_a_vocabulary_of_its_own_tokens(folder, tmp_path):
    model = make_model(config_of(folder))
    assert model.unit is not None and model.config.mask_unit == "pmi"
    with pytest.raises(UserError, match="mask_unit pmi needs mask_sampling without_replacement"):
        config_of(folder, mask_sampling="with_replacement")
    with pytest.raises(UserError, match=r"pmi_vocab_file: .*does not exist; make it with electra build-table pmi"):
        unit_of(config_of(tmp_path))
    other = tmp_path / "vocab.txt"
    other.write_text("\n".join([*TOKENS[:-1], "another"]))
    with pytest.raises(UserError, match="was counted with another vocabulary than"):
        unit_of(config_of(folder, vocab_file=str(other)))
    (tmp_path / "pmi_vocab.npz").write_text("no table")
    with pytest.raises(UserError, match="cannot be read"):
        unit_of(config_of(tmp_path))
