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

from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import read_bytes, read_json, read_text, typed

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
            f"{os.fspath(path)} is of a {_model_of(path).get('type')} tokenizer: models with one can be loaded and "
            "fine-tuned on texts, but this needs WordPiece"
        )
    return load_tokens(path)


def load_tokens(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a vocabulary in the order of their ids: of a vocab.txt, or of any tokenizer.json.

    Raises:
      UserError: it cannot be used.
    """
    path = os.fspath(path)
    if not os.path.lexists(path):
        raise UserError(f"{_WHAT} {path!r} does not exist; give an existing one or make it with electra build-vocab")
    if path.endswith(".json"):
        return _tokens_of(path)
    tokens = [line.removesuffix("\r") for line in read_text(path, _WHAT).split("\n")]  # U+2028 ends no line
    while tokens and not tokens[-1]:
        tokens.pop()
    check_vocab(tokens, path)
    return tokens


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


def _tokens_of(where: str) -> list[str]:
    """Tokens of a tokenizer.json; of other models than WordPiece with the added ones, ids that it leaves out named."""
    model = _model_of(where)
    if model.get("type") == "Unigram":
        pieces = typed(model.get("vocab"), list, f"{where}: vocab")
        ids: dict[str, Any] = {str(piece[0]): number for number, piece in enumerate(pieces)}
    else:
        ids = typed(model.get("vocab"), dict, f"{where}: vocab")
    if is_wordpiece(where):
        ids = {token: typed(number, int, f"{where}: id of {token}") for token, number in ids.items()}
        tokens = sorted(ids, key=ids.__getitem__)
        if [ids[token] for token in tokens] != list(range(len(tokens))):
            raise UserError(f"{where}: the ids of its vocabulary have gaps")
        check_vocab(tokens, where)
        return tokens
    ids = ids | added_tokens(read_json(where, "tokenizer"), where)
    numbers = {typed(number, int, f"{where}: id of {token}"): token for token, number in ids.items()}
    if not numbers or not 0 <= min(numbers) <= max(numbers) < MAX_TOKENS:
        raise UserError(f"{where}: the ids of its tokens must be from 0 to {MAX_TOKENS - 1:,}")
    return [numbers.get(number, f"[no token {number}]") for number in range(max(numbers) + 1)]


def check_vocab(tokens: Sequence[str], name: str) -> None:
    """Raises UserError unless every token can be used, and the special ones are among them."""
    if not tokens:
        raise UserError(f"{_WHAT} {name!r} is empty; it needs one token a line")
    if len(tokens) > MAX_TOKENS:
        raise UserError(f"{_WHAT} {name!r} has {len(tokens):,} tokens; at most {MAX_TOKENS:,} are supported")
    problems = []
    known = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in known]
    if missing:
        problems.append(f"lacks {_listing(missing)}")
    unusable = {
        "has tokens with a NUL character in lines": lambda token: "\0" in token,
        "has tokens that are too long in lines": lambda token: (
            len(token) * 4 > _MAX_TOKEN_BYTES and len(token.removeprefix("##").encode()) > _MAX_TOKEN_BYTES
        ),
    }
    for problem, is_so in unusable.items():
        found = [str(number) for number, token in enumerate(tokens, start=1) if is_so(token)]
        if found:
            problems.append(f"{problem}: {_listing(found)}")
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
