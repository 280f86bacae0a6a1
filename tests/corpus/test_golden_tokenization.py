"""The tokenizer against wordpieces that the original program produced, for each text and setting."""

import json
import unicodedata
from pathlib import Path

import pytest

from electra_tf2.corpus.tokenization import WordpieceTokenizer
from tests.support import bert_reference

GOLDEN = Path(__file__).parents[1] / "golden"
SETTINGS = [(lower, strip) for lower in (1, 0) for strip in (1, 0)]


@pytest.fixture(scope="module")
def golden():
    return json.loads((GOLDEN / "tokenizer.json").read_text(encoding="utf-8"))


def newer_unicode(golden, text, pieces, lower, strip, vocab) -> bool:
    """True if a difference is due to this Python's Unicode, which changes with the version of Python."""
    if unicodedata.unidata_version == golden["unidata_version"]:
        return False
    return pieces == bert_reference.tokens(text, vocab, bool(lower), bool(strip))


@pytest.mark.parametrize(("lower", "strip"), SETTINGS)
def test_wordpieces_equal_the_originals(golden, lower, strip):
    expected = golden["settings"][f"lower={lower},strip_accents={strip}"]
    if isinstance(expected, str):  # "same as ..."
        expected = golden["settings"][expected.removeprefix("same as ")]
    assert len(expected) == len(golden["texts"]) == 297
    tokenizer = WordpieceTokenizer(GOLDEN / golden["vocab"], bool(lower), bool(strip))
    ids, lengths = tokenizer.tokenize([text.encode("utf-8", "surrogatepass") for text in golden["texts"]])
    assert lengths.sum() == len(ids)
    wrong, position = [], 0
    for text, length, pair in zip(golden["texts"], lengths, expected, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(ids[position : position + length])
        position += length
        if pieces != pair["pieces"] and not newer_unicode(golden, text, pieces, lower, strip, set(tokenizer.vocab)):
            wrong.append((text, pieces, pair["pieces"]))
    assert not wrong, f"{len(wrong)} of {len(expected)} texts differ, first: {wrong[0]}"
