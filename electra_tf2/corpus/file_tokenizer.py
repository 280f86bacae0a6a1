"""Tokenizers other than WordPiece, byte-level BPE and Unigram, as their tokenizer.json describes them.

How text is normalised and divided, and which special tokens stand around it, is what the file says; the package
`tokenizers` runs it. WordPiece has its own, faster, in corpus.tokenization.
"""

import os
from collections.abc import Iterable, Sequence

import numpy as np
from tokenizers import Tokenizer

from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer, Words, starts_of
from electra_tf2.corpus.vocabulary import SpecialIds, is_wordpiece, load_tokens
from electra_tf2.util.errors import UserError

_NAMES = {"pad": ("[PAD]", "<pad>"), "mask": ("[MASK]", "<mask>"), "unk": ("[UNK]", "<unk>")}


class FileTokenizer(WordpieceTokenizer):
    """Text to ids and back by a tokenizer.json.

    Raises:
      UserError: the file is damaged, or its special tokens are not [CLS] A [SEP] B [SEP] under any name.
    """

    is_wordpiece = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.vocab = load_tokens(path)
        try:
            self._tokenizer = Tokenizer.from_file(self.path)
        except Exception as error:  # of no narrower type
            raise UserError(f"{self.path} is no tokenizer: {error}") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.special = self._special_ids()
        added = self._tokenizer.get_added_tokens_decoder().get(self.special.mask)
        self.mask_takes_blank = added is not None and added.lstrip
        self._tokenizer.encode_special_tokens = True  # what is written like a special token is text

    def _special_ids(self) -> SpecialIds:
        around, of_pair = self._tokenizer.encode("").ids, self._tokenizer.encode("", "").ids
        if len(around) != 2 or of_pair != [*around, around[1]]:
            tokens = " ".join(self.convert_ids_to_tokens(of_pair)) or "nothing"
            raise UserError(f"{self.path} puts {tokens} around two texts: [CLS] A [SEP] B [SEP] is needed")
        found = {
            name: [number for token in names if (number := self._tokenizer.token_to_id(token)) is not None]
            for name, names in _NAMES.items()
        }
        lacking = [" or ".join(_NAMES[name]) for name in ("pad", "mask") if not found[name]]
        if lacking:
            raise UserError(f"{self.path} has no {' and no '.join(lacking)}")
        pad, mask = found["pad"][0], found["mask"][0]
        unknown = found["unk"][0] if found["unk"] else pad  # bytes know no unknown text
        return SpecialIds(pad, unknown, around[0], around[1], mask)

    def tokenize(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Ids of all lines one after the other [sum of lengths] and their number for each line [lines], int32."""
        texts = [line.decode("utf-8", "ignore") for line in lines]
        found = [one.ids for one in self._tokenizer.encode_batch(texts, add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in found], np.int32)
        return np.array([number for ids in found for number in ids], np.int32), lengths

    def located(self, texts: Sequence[Words]) -> list[Located]:
        """The pieces of texts that are divided into words.

        A text is tokenised as a whole, blanks included, as the model has seen text. A piece belongs to the word of its
        first character that is no blank; one of blanks alone to the word before it.
        """
        found = []
        # What is no Unicode (halves of surrogate pairs) becomes "?", so that places stay as they are.
        strings = [text.text.encode("utf-8", "replace").decode() for text in texts]
        encoded = self._tokenizer.encode_batch(strings, add_special_tokens=False)
        for text, one in zip(texts, encoded, strict=True):
            spans = np.array(one.offsets, np.int32).reshape([-1, 2])
            letters = np.flatnonzero([not character.isspace() for character in text.text])
            low, high = np.searchsorted(letters, spans[:, 0]), np.searchsorted(letters, spans[:, 1])
            inside = low < high
            spans[inside] = np.stack([letters[low[inside]], letters[high[inside] - 1] + 1], -1)
            words = np.maximum(np.searchsorted(text.starts, spans[:, 0], side="right") - 1, 0)
            words = np.maximum.accumulate(words).astype(np.int32)
            first = starts_of(np.bincount(words, minlength=len(text.words)))
            found.append(Located(np.array(one.ids, np.int32), words, first, spans))
        return found

    def readable(self, ids: Iterable[int]) -> str:
        """Text for people to look at, padding left out."""
        kept = [number for number in ids if number != self.special.pad]
        return self._tokenizer.decode(kept, skip_special_tokens=False)


def tokenizer_for(
    vocab_file: str | os.PathLike[str] | list[str], do_lower_case: bool = True, strip_accents: bool | None = None
) -> WordpieceTokenizer:
    """The tokenizer of a vocabulary: WordPiece's of a vocab.txt, a list of tokens or its tokenizer.json, or any other
    tokenizer.json's, which itself says how text is normalised."""
    if not isinstance(vocab_file, list) and not is_wordpiece(vocab_file):
        return FileTokenizer(vocab_file)
    return WordpieceTokenizer(vocab_file, do_lower_case, strip_accents)
