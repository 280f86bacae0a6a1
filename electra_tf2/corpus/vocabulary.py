"""Reads and checks vocabularies without TensorFlow.

A WordPiece vocabulary is a text file with a token on each line; the index of the line is the token's id. Released
vocabularies have blank lines, tokens of white space, and duplicates. Every line keeps its id, and a duplicate token has
the id of its last line, as in BERT's own program.

Every program that needs ids loads its vocabulary here, so that an unusable one is refused at the start, with a list of
all that is wrong with it.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from electra_tf2.files.reading import read_bytes, read_json, read_text, typed
from electra_tf2.util.errors import UserError

PAD = "[PAD]"
UNK = "[UNK]"
CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
TOKENIZER_FILE = "tokenizer.json"  # Hugging Face's file for any kind of tokenizer, vocabulary included
MAX_TOKENS = 1 << 20  # more than any vocabulary in use; records encode ids in three bytes

_WHAT = "vocabulary file"
_MAX_TOKEN_BYTES = 256  # tensorflow_text's limit
_SHOWN = 5  # tokens that an error lists


class SpecialIds(NamedTuple):
    """Ids of the five special tokens."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def load_vocab(path: str | os.PathLike[str]) -> list[str]:
    """Reads a WordPiece vocabulary, vocab.txt or tokenizer.json: its tokens in the order of their ids.

    Raises:
      UserError: the vocabulary is unusable, or another tokenizer's.
    """
    if not is_wordpiece(path):
        raise UserError(
            f"{os.fspath(path)} is of a {_model_of(path).get('type')} tokenizer: its models can be loaded and "
            "fine-tuned on texts, but what you ask for needs WordPiece"
        )
    return load_tokens(path)


def load_tokens(path: str | os.PathLike[str]) -> list[str]:
    """Reads a vocab.txt, or the tokenizer.json of any tokenizer: its tokens in the order of their ids.

    For tokenizers other than WordPiece this includes added tokens, and a placeholder for each id that the file skips.

    Raises:
      UserError: the vocabulary is unusable.
    """
    path = os.fspath(path)
    if not os.path.lexists(path):
        raise UserError(f"{_WHAT} {path!r} does not exist; give an existing one or make it with electra build-vocab")
    if not path.endswith(".json"):
        return _tokens_of_text(path)
    if is_wordpiece(path):
        return _tokens_of_wordpiece(path)
    return _tokens_of_other_tokenizer(path)


def _tokens_of_text(path: str) -> list[str]:
    lines = read_text(path, _WHAT).split("\n")  # splitlines would also split at U+2028 and others
    tokens = [line.removesuffix("\r") for line in lines]
    while tokens and not tokens[-1]:
        tokens.pop()
    check_vocab(tokens, path)
    return tokens


def _tokens_of_wordpiece(path: str) -> list[str]:
    by_id = _tokens_by_id(_vocab_of_model(path), path)
    if sorted(by_id) != list(range(len(by_id))):
        raise UserError(f"{path}: the ids of its tokens have gaps: they must be 0, 1, 2 and so on")
    tokens = [by_id[token_id] for token_id in range(len(by_id))]
    check_vocab(tokens, path)
    return tokens


def _tokens_of_other_tokenizer(path: str) -> list[str]:
    ids = _vocab_of_model(path) | added_tokens(read_json(path, "tokenizer"), path)
    by_id = _tokens_by_id(ids, path)
    if not by_id or min(by_id) < 0 or max(by_id) >= MAX_TOKENS:
        raise UserError(f"{path}: the ids of its tokens must be from 0 to {MAX_TOKENS - 1:,}")
    return [by_id.get(token_id, f"[no token {token_id}]") for token_id in range(max(by_id) + 1)]


def _vocab_of_model(path: str) -> dict[str, Any]:
    """Token -> id, from the model in a tokenizer.json. The types of ids are not checked."""
    model = _model_of(path)
    where = f"{path}: vocab"
    if model.get("type") != "Unigram":
        return dict(typed(model.get("vocab"), dict, where))
    ids = {}
    for token_id, piece in enumerate(typed(model.get("vocab"), list, where)):  # piece: [token, log-probability]
        ids[str(piece[0])] = token_id
    return ids


def _tokens_by_id(ids: dict[str, Any], path: str) -> dict[int, str]:
    """Inverts token -> id. Raises UserError for an id that is no integer."""
    tokens = {}
    for token, token_id in ids.items():
        tokens[typed(token_id, int, f"{path}: id of {token}")] = token
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
    """Token -> id, from the list of added tokens in a tokenizer.json. The types of ids are not checked."""
    what = f"{os.fspath(where)}: added_tokens"
    ids = {}
    for entry in typed(tokenizer.get("added_tokens") or [], list, what):
        token = typed(entry, dict, what)
        ids[str(token.get("content"))] = token.get("id")
    return ids


def check_vocab(tokens: Sequence[str], name: str) -> None:
    """Raises UserError if a token is unusable, or a special one missing."""
    if not tokens:
        raise UserError(f"{_WHAT} {name!r} is empty; it needs one token a line")
    if len(tokens) > MAX_TOKENS:
        raise UserError(f"{_WHAT} {name!r} has {len(tokens):,} tokens; at most {MAX_TOKENS:,} are supported")
    known = set(tokens)
    missing = [token for token in SPECIAL_TOKENS if token not in known]
    with_nul = []
    too_long = []
    for line, token in enumerate(tokens, start=1):
        if "\0" in token:
            with_nul.append(str(line))
        if _is_too_long(token):
            too_long.append(str(line))
    problems = []
    if missing:
        problems.append(f"lacks {_listing(missing)}")
    if with_nul:
        problems.append(f"has tokens with a NUL character in lines: {_listing(with_nul)}")
    if too_long:
        problems.append(f"has tokens that are too long in lines: {_listing(too_long)}")
    if not problems and all(_is_bracketed(token) for token in known - {""}):
        problems.append("holds special tokens and no words")
    if not problems:
        return
    hint = ""
    if missing:
        hint = "; a WordPiece vocabulary in BERT's format is needed (SentencePiece models are not)"
    raise UserError(f"{_WHAT} {name!r} {', '.join(problems)}{hint}")


def _is_too_long(token: str) -> bool:
    if len(token) * 4 <= _MAX_TOKEN_BYTES:  # a character has at most four bytes
        return False
    return len(token.removeprefix("##").encode()) > _MAX_TOKEN_BYTES


def _is_bracketed(token: str) -> bool:
    return token.startswith("[") and token.endswith("]")


def special_ids(tokens: Sequence[str]) -> SpecialIds:
    """Ids of [PAD], [UNK], [CLS], [SEP] and [MASK] in a vocabulary from load_vocab."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    return SpecialIds(ids[PAD], ids[UNK], ids[CLS], ids[SEP], ids[MASK])


def vocab_bytes(path: str | os.PathLike[str]) -> bytes:
    """Content of a vocabulary as a vocab.txt. A tokenizer.json is converted."""
    if os.fspath(path).endswith(".json"):
        return "".join(f"{token}\n" for token in load_vocab(path)).encode()
    return read_bytes(os.fspath(path), _WHAT)


def vocab_sha256(path: str | os.PathLike[str]) -> str:
    """SHA-256 of `vocab_bytes`, by which records and checkpoints identify their vocabulary.

    Raises:
      UserError: the file cannot be read.
    """
    return hashlib.sha256(vocab_bytes(path)).hexdigest()


def _listing(items: Sequence[str]) -> str:
    """Lists the first few items, and the number of the others."""
    shown = ", ".join(items[:_SHOWN])
    if len(items) <= _SHOWN:
        return shown
    return f"{shown} and {len(items) - _SHOWN} more"
