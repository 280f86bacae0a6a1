"""Reading and checking a WordPiece vocabulary without TensorFlow.

A vocabulary is a text file with one token a line; the line number, counted from zero, is the token's id. Released ones
have tokens that are white space, blank lines and tokens that stand there twice: every line keeps its id, and of equal
ones the last is the token's, as in BERT's own program. Everything
that needs ids (the data builder, the masking of the model, the tokenizer) loads the file here, so that a vocabulary
that cannot work is refused at start-up with the list of what is wrong with it.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from electra_tf2.files.reading import read_bytes, read_json, read_text, typed
from electra_tf2.util.errors import UserError

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
TOKENIZER_FILE = "tokenizer.json"  # of Hugging Face's, which holds a vocabulary as well
MAX_TOKENS = 1 << 20  # beyond any vocabulary in use; records encode ids in three bytes

_WHAT = "vocabulary file"
_MAX_TOKEN_BYTES = 256  # of tensorflow_text
_SHOWN = 5  # how many offending tokens an error lists


class SpecialIds(NamedTuple):
    """Ids of the five special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load_vocab(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a WordPiece vocabulary, vocab.txt or tokenizer.json, in the order of their ids.

    Raises:
      UserError: it cannot be used, or is of another tokenizer.
    """
    if not is_wordpiece(path):
        raise UserError(
            f"{os.fspath(path)} is of a {_model_of(path).get('type')} tokenizer: its models can be loaded and "
            "fine-tuned on texts, but what you ask for needs WordPiece"
        )
    return load_tokens(path)


def load_tokens(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a vocabulary in the order of their ids: of a vocab.txt, or of any tokenizer.json.

    Of other tokenizers than WordPiece added tokens are among them, and ids that the file leaves out are named.

    Raises:
      UserError: it cannot be used.
    """
    path = os.fspath(path)
    if not os.path.lexists(path):
        raise UserError(f"{_WHAT} {path!r} does not exist; give an existing one or make it with electra build-vocab")
    if not path.endswith(".json"):
        tokens = [line.removesuffix("\r") for line in read_text(path, _WHAT).split("\n")]  # U+2028 ends no line
        while tokens and not tokens[-1]:
            tokens.pop()
        check_vocab(tokens, path)
        return tokens
    model = _model_of(path)
    if model.get("type") == "Unigram":
        pieces = typed(model.get("vocab"), list, f"{path}: vocab")
        ids: dict[str, Any] = {str(piece[0]): number for number, piece in enumerate(pieces)}
    else:
        ids = dict(typed(model.get("vocab"), dict, f"{path}: vocab"))
    wordpiece = is_wordpiece(path)
    if not wordpiece:
        ids |= added_tokens(read_json(path, "tokenizer"), path)
    numbers = {typed(number, int, f"{path}: id of {token}"): token for token, number in ids.items()}
    if wordpiece:
        if sorted(numbers) != list(range(len(ids))):
            raise UserError(f"{path}: the ids of its tokens have gaps: they must be 0, 1, 2 and so on")
        tokens = [numbers[number] for number in range(len(ids))]
        check_vocab(tokens, path)
        return tokens
    if not numbers or not 0 <= min(numbers) <= max(numbers) < MAX_TOKENS:
        raise UserError(f"{path}: the ids of its tokens must be from 0 to {MAX_TOKENS - 1:,}")
    return [numbers.get(number, f"[no token {number}]") for number in range(max(numbers) + 1)]


def is_wordpiece(path: str | os.PathLike[str]) -> bool:
    """True for a vocab.txt, and for a tokenizer.json of a WordPiece tokenizer."""
    path = os.fspath(path)
    if not path.endswith(".json") or not os.path.isfile(path):
        return True
    model = _model_of(path)
    return model.get("type", "WordPiece") == "WordPiece" and model.get("continuing_subword_prefix", "##") == "##"


def _model_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    where = os.fspath(path)
    return typed(read_json(where, "tokenizer").get("model") or {}, dict, f"{where}: model")


def added_tokens(tokenizer: dict[str, Any], where: str | os.PathLike[str]) -> dict[str, Any]:
    """The tokens that a tokenizer.json lists beside its model's, and their ids."""
    what = f"{os.fspath(where)}: added_tokens"
    listed = [typed(one, dict, what) for one in typed(tokenizer.get("added_tokens") or [], list, what)]
    return {str(one.get("content")): one.get("id") for one in listed}


def check_vocab(tokens: Sequence[str], name: str) -> None:
    """Raises UserError unless every token can be used, and the special ones are among them."""
    if not tokens:
        raise UserError(f"{_WHAT} {name!r} is empty; it needs one token a line")
    if len(tokens) > MAX_TOKENS:
        raise UserError(f"{_WHAT} {name!r} has {len(tokens):,} tokens; at most {MAX_TOKENS:,} are supported")
    known = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in known]
    problems = [f"lacks {_listing(missing)}"] if missing else []
    with_nul = [str(number) for number, token in enumerate(tokens, start=1) if "\0" in token]
    too_long = [
        str(number)
        for number, token in enumerate(tokens, start=1)
        if len(token) * 4 > _MAX_TOKEN_BYTES and len(token.removeprefix("##").encode()) > _MAX_TOKEN_BYTES
    ]
    for problem, lines in (("with a NUL character", with_nul), ("that are too long", too_long)):
        if lines:
            problems.append(f"has tokens {problem} in lines: {_listing(lines)}")
    if not problems and all(token[:1] == "[" and token[-1] == "]" for token in known - {""}):
        problems.append("holds special tokens and no words")
    if problems:
        hint = "; a WordPiece vocabulary in BERT's format is needed (SentencePiece models are not)" if missing else ""
        raise UserError(f"{_WHAT} {name!r} " + ", ".join(problems) + hint)


def special_ids(tokens: Sequence[str]) -> SpecialIds:
    """Ids of [PAD], [UNK], [CLS], [SEP] and [MASK] in a vocabulary that load_vocab has accepted."""
    ids = {token: number for number, token in enumerate(tokens)}
    return SpecialIds(*map(ids.__getitem__, SPECIAL_TOKENS))


def vocab_bytes(path: str | os.PathLike[str]) -> bytes:
    """A vocabulary as a vocab.txt: the file as it is on disk, or the tokens of a tokenizer.json, one a line."""
    if os.fspath(path).endswith(".json"):
        return "".join(f"{token}\n" for token in load_vocab(path)).encode()
    return read_bytes(os.fspath(path), _WHAT)


def vocab_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of `vocab_bytes` (of a vocab.txt what `sha256sum` prints): records and checkpoints name their vocabulary.

    Raises:
      UserError: the file cannot be read.
    """
    return hashlib.sha256(vocab_bytes(path)).hexdigest()


def _listing(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
