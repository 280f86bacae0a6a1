"""Reads and writes the tokenizer of a Hugging Face directory: WordPiece's vocabulary and casing.

Any other tokenizer.json is used as it is (corpus.tokenization.FileTokenizer), and copied when a model is written.
"""

import re
from pathlib import Path
from typing import Any

from electra_tf2.corpus.vocabulary import (
    CLS,
    SEP,
    SPECIAL_TOKENS,
    TOKENIZER_FILE,
    SpecialIds,
    added_tokens,
    is_wordpiece,
    load_tokens,
)
from electra_tf2.files.reading import read_json, typed
from electra_tf2.files.writing import write_atomically, write_json
from electra_tf2.formats.electra_folder import write_vocabulary
from electra_tf2.formats.folders import VOCABULARY
from electra_tf2.formats.stored_model import Casing, StoredModel
from electra_tf2.util.errors import UserError, shown

_SETTINGS_FILE = "tokenizer_config.json"
_ADDED_FILE = "added_tokens.json"
# Classes that divide text as BERT's does. Not every class whose name ends in BertTokenizer does (RemBert).
_BERT_TOKENIZERS = r"(Electra|Bert|ConvBert|DistilBert|MobileBert|RetriBert|SqueezeBert|VisualBert)Tokenizer(Fast)?"


# Reading.


def tokenizer_in(folder: Path) -> Path:
    """The file of a directory's vocabulary: vocab.txt or, if there is none, tokenizer.json.

    Raises:
      UserError: it has neither.
    """
    for name in (VOCABULARY, TOKENIZER_FILE):
        path = folder / name
        if path.is_file():
            return path
    raise UserError(f"{folder} has neither {VOCABULARY} nor {TOKENIZER_FILE}: its vocabulary is needed")


def tokens_in(folder: Path) -> list[str]:
    """Reads the vocabulary of a directory.

    Raises:
      UserError: there is none, or its WordPiece tokenizer has tokens with ids beyond the vocabulary.
    """
    path = tokenizer_in(folder)
    tokens = load_tokens(path)
    if is_wordpiece(path):
        _check_ids(folder, tokens)
    return tokens


def _check_ids(folder: Path, tokens: list[str]) -> None:
    """Raises UserError if tokens were added after the last one of the vocabulary."""
    added = _json(folder / _ADDED_FILE) | added_tokens(_json(folder / TOKENIZER_FILE), folder)
    beyond = []
    for token, token_id in added.items():
        if typed(token_id, int, f"{folder}: id of the added token {token}") >= len(tokens):
            beyond.append(token)
    if beyond:
        raise UserError(
            f"{folder}: its tokenizer has tokens beyond the WordPiece vocabulary, which ours cannot have: "
            f"{', '.join(sorted(beyond)[:5])}"
        )


def casing_of(folder: Path) -> Casing:
    """Reads a WordPiece tokenizer's casing as transformers does.

    transformers' classes of BERT's kind read do_lower_case, strip_accents and tokenize_chinese_chars from
    tokenizer_config.json, with defaults of their own, and ignore the normalizer in tokenizer.json. Other classes use
    that normalizer.

    Raises:
      UserError: the tokenizer divides text into words otherwise than BERT's.
    """
    # transformers calls tokenizers that read tokenizer.json fast, and those that read the other files slow.
    fast_file = folder / TOKENIZER_FILE
    slow_file = folder / _SETTINGS_FILE
    fast = _json(fast_file)
    slow = _json(slow_file)
    if fast and not (folder / VOCABULARY).is_file() and not is_wordpiece(fast_file):
        return Casing(False)  # its file normalises text itself
    class_name = typed(slow.get("tokenizer_class") or "BertTokenizer", str, f"{slow_file}: tokenizer_class")
    is_berts = re.fullmatch(_BERT_TOKENIZERS, class_name) is not None
    normalizer = typed(fast.get("normalizer") or {}, dict, f"{fast_file}: normalizer")
    words = typed(fast.get("pre_tokenizer") or {}, dict, f"{fast_file}: pre_tokenizer")
    problems = []
    if fast and normalizer.get("type") != "BertNormalizer":
        problems.append(f"normalizer {normalizer.get('type')}")
    if fast and words.get("type") != "BertPreTokenizer":
        problems.append(f"pre_tokenizer {words.get('type')}")
    where = slow_file
    if problems or (fast and not is_berts):
        where = fast_file
    if fast and not is_berts:
        casing = Casing(normalizer.get("lowercase", True), normalizer.get("strip_accents"))
        switches = {name: normalizer.get(name, True) for name in ("clean_text", "handle_chinese_chars")}
    else:
        if not is_berts:
            problems.append(f"tokenizer_class {class_name}")
        casing = Casing(slow.get("do_lower_case", True), slow.get("strip_accents"))
        switches = {name: slow.get(name, True) for name in ("do_basic_tokenize", "tokenize_chinese_chars")}
        switches["clean_text"] = normalizer.get("clean_text", True)
    problems += [f"{name} false" for name, is_on in switches.items() if not is_on]
    unsplit = _unsplit_tokens(slow, fast, _json(folder / _ADDED_FILE))
    if unsplit:
        problems.append(f"tokens beside the vocabulary's that stand for themselves in text: {shown(unsplit)}")
    if casing.strip_accents and not casing.do_lower_case:
        problems.append("strip_accents true for text that is not lower-cased")
    if problems:
        raise UserError(f"{where}: our tokenizer is BERT's and has no {'; no '.join(problems)}")
    return casing


def _unsplit_tokens(slow: dict[str, Any], fast: dict[str, Any], added: dict[str, Any]) -> list[str]:
    """Tokens that transformers takes out of a text before it is divided into words, except BERT's special ones.

    Args:
      slow, fast, added: contents of tokenizer_config.json, tokenizer.json and added_tokens.json.
    """
    tokens = [*added, *(slow.get("never_split") or [])]
    for entry in (slow.get("added_tokens_decoder") or {}).values():
        tokens.append(entry.get("content"))
    for entry in [*(fast.get("added_tokens") or []), *(slow.get("additional_special_tokens") or [])]:
        tokens.append(entry.get("content") if isinstance(entry, dict) else entry)
    special = set(SPECIAL_TOKENS)
    for name in SpecialIds._fields:
        token = slow.get(f"{name}_token")
        if isinstance(token, str):
            special.add(token)
    return sorted({str(token) for token in tokens} - special)


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "tokenizer") if path.is_file() else {}


# Writing.


def write_tokenizer_of(model: StoredModel, folder: Path, max_length: int) -> None:
    """Writes a model's tokenizer for transformers. A tokenizer.json that is not WordPiece's is copied."""
    if not model.tokenizer_file:
        segments = min(2, model.architecture.type_vocab_size or 2)
        write_tokenizer(folder, model.tokens, model.casing, max_length, segments)
        return
    write_vocabulary(folder, model)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length}
    for name, token_id in model.tokenizer().special._asdict().items():
        settings[f"{name}_token"] = model.tokens[token_id]
    write_json(folder / _SETTINGS_FILE, settings)


def write_tokenizer(folder: Path, tokens: list[str], casing: Casing, max_length: int, segments: int = 2) -> None:
    """Writes vocab.txt, tokenizer.json and tokenizer_config.json, for transformers' fast and slow tokenizers.

    Args:
      segments: number of segments that the network tells apart. With 1, both texts of a pair are in the first one.
    """
    from tokenizers import BertWordPieceTokenizer
    from tokenizers.processors import TemplateProcessing

    from electra_tf2.corpus.normalization import MAX_CHARS_PER_WORD

    # Ours strips accents from lower-cased text only; transformers' would strip them from cased text, too.
    strip_accents = casing.strip_accents and casing.do_lower_case
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = BertWordPieceTokenizer(ids, strip_accents=strip_accents, lowercase=casing.do_lower_case)
    tokenizer.model.max_input_chars_per_word = MAX_CHARS_PER_WORD
    tokenizer.post_processor = TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:{segments - 1} {SEP}:{segments - 1}",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    tokenizer.enable_truncation(max_length)  # for programs that read tokenizer.json alone; transformers has its own
    write_atomically(folder / VOCABULARY, "".join(f"{token}\n" for token in tokens))
    write_atomically(folder / TOKENIZER_FILE, tokenizer.to_str(pretty=True) + "\n")
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": casing.do_lower_case,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
    }
    for name, token in zip(SpecialIds._fields, SPECIAL_TOKENS, strict=True):
        settings[f"{name}_token"] = token
    write_json(folder / _SETTINGS_FILE, settings)
