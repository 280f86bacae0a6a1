"""Pairs of a question and a sentence, as QNLI's, from SQuAD's training questions.

  python -m benchmarks.qnli_from_squad --squad data/finetuning_data/squadv1/train.json --output pairs/qnli/train.tsv

QNLI was made of SQuAD: does this sentence of the paragraph hold the answer (Wang et al. 2019, section 3.3)? So where
only a part of its training set is at hand, a set as large can be made again. Each question yields one pair: by a fair
coin the sentence in which its first answer begins, or, of the paragraph's other sentences, the one with the most words
in common, since pairs that share little were filtered out of QNLI. With `--both` it yields the two, so twice as many.
Questions of a paragraph of one sentence yield nothing. QNLI's development set is of SQuAD's other articles, but
articles share text: 5 of its 3,913 sentences are among those of SQuAD's pairs.
"""

import itertools
import random
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.common import parser_of
from electra_tf2.finetune.qa.data import Question, read_questions
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_atomically

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def pairs_of(questions: Iterable[Question], coin: random.Random, both: bool = False) -> Iterator[tuple[str, str, str]]:
    """Question, sentence and QNLI's label, in the order of the questions, whose answers are located.

    Args:
      questions: of SQuAD's training set.
      coin: draws which of a question's two pairs is made.
      both: makes both pairs, the sentence with the answer first, and draws nothing.
    """
    for question in questions:
        paragraph = question.paragraph.text
        starts = [0, *(gap.end() for gap in _SENTENCE_ENDS.finditer(paragraph)), len(paragraph)]
        sentences = [paragraph[start:end] for start, end in itertools.pairwise(starts) if start < end]
        if len(sentences) < 2:
            continue
        answer, asked = question.paragraph.starts[question.start], question.text
        found = sentences.pop(max(index for index in range(len(sentences)) if starts[index] <= answer))
        other = max(sentences, key=lambda text: len(_words(asked) & _words(text)))
        pairs = [(found, "entailment"), (other, "not_entailment")]
        for sentence, label in pairs if both else [pairs[coin.random() >= 0.5]]:
            yield " ".join(asked.split()), " ".join(sentence.split()), label


def main() -> None:
    """Writes the pairs, with QNLI's header; `--seed` is the coin's."""
    options = parser_of(__doc__, squad=Path, output=Path, seed=0, both=False).parse_args()
    try:
        questions = read_questions(options.squad, mrqa=False, v2=False, training=True)
        rows = [("question", "sentence", "label"), *pairs_of(questions, random.Random(options.seed), options.both)]
        lines = ["\t".join((str(index - 1) if index else "index", *row)) for index, row in enumerate(rows)]
        write_atomically(options.output, "\n".join(lines) + "\n")
    except UserError as error:
        sys.exit(f"error: {error}")
    print(f"{len(rows) - 1:,} pairs in {options.output}")


if __name__ == "__main__":
    main()
