"""The casing that follows from a vocabulary alone."""

import pytest

from electra_tf2.corpus.casing import is_lower_cased, keeps_accents
from tests.support.vocabularies import CASED, UNCASED

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Tokens, whether they are of lower-cased text, and whether their accents were kept.
VOCABULARIES = {
    "BERT's uncased": (UNCASED, True, False),
    "BERT's cased": (CASED, False, True),
    "cased ASCII": (["the", "The", "##s", "Paris"], False, False),
    "BERT's Chinese, with <S> and <T>": (["<S>", "<T>", "一", "##一", "qq"], True, False),
    "own words in place of [unused1]": ([*(f"word{number}" for number in range(99)), "DATE"], True, False),
    "lower-cased French with accents": (["le", "été", "##é", "œuvre"], True, True),
    "lower-cased Hindi": (["है", "##ों", "##ी"], True, True),  # whose vowel signs stripping would drop
    "Korean": (["한국", "##어", "는"], True, True),  # whose syllables stripping would take apart
    "Korean beside cased English": (["한국", "##어", "The", "the"], False, True),
    "Chinese": (["一", "二"], True, False),
    "digits and signs": (["1", "##2", "+", "™", "ℝ"], True, False),
}


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_words_that_normalising_would_change_tell_the_casing(kind: str) -> None:
    words, lower_cased, accents = VOCABULARIES[kind]
    assert is_lower_cased(SPECIAL + words) == lower_cased
    assert keeps_accents(SPECIAL + words) == accents
