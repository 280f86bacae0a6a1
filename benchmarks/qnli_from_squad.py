"""Pairs of a question and a sentence, as QNLI's, from SQuAD's training questions.

  python benchmarks/qnli_from_squad.py --squad data/finetuning_data/squadv1/train.json --output pairs/qnli/train.tsv

QNLI was made of SQuAD: does this sentence of the paragraph hold the answer (Wang et al. 2019, section 3.3)? So where
only a part of its training set is at hand, a set as large can be made again. Each question yields one pair: by a fair
coin the sentence in which its first answer begins, or, of the paragraph's other sentences, the one with the most words
in common, since pairs that share little were filtered out of QNLI. Questions of a paragraph of one sentence yield
nothing. QNLI's development set is made of other articles.
"""

import argparse
import itertools
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from util.files import write_atomically

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])")
_WORDS = re.compile(r"\w+")


def sentences_of(paragraph: str) -> list[tuple[int, str]]:
    """Offset in characters and text of each sentence."""
    starts = [0, *(gap.end() for gap in _SENTENCE_ENDS.finditer(paragraph)), len(paragraph)]
    return [(start, " ".join(paragraph[start:end].split())) for start, end in itertools.pairwise(starts) if start < end]


def pairs_of(squad: dict[str, Any], coin: random.Random) -> Iterator[tuple[str, str, str]]:
    """Question, sentence and QNLI's label, in the order of the questions."""
    for paragraph in (one for article in squad["data"] for one in article["paragraphs"]):
        sentences = sentences_of(paragraph["context"])
        if len(sentences) < 2:
            continue
        for asked in paragraph["qas"]:
            question, answer = " ".join(asked["question"].split()), asked["answers"][0]["answer_start"]
            holder = max(index for index, (start, _) in enumerate(sentences) if start <= answer)
            words = set(_WORDS.findall(question.lower()))
            others = [text for index, (_, text) in enumerate(sentences) if index != holder]
            if coin.random() < 0.5:
                yield question, sentences[holder][1], "entailment"
            else:
                closest = max(others, key=lambda text: len(words & set(_WORDS.findall(text.lower()))))
                yield question, closest, "not_entailment"


def main(arguments: list[str] | None = None) -> None:
    """Writes the pairs, with QNLI's header."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--squad", type=Path, required=True, help="training questions, SQuAD 1.1's JSON")
    parser.add_argument("--output", type=Path, required=True, help="file of tab-separated values to write")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    squad = json.loads(options.squad.read_text(encoding="utf-8"))
    rows = [("question", "sentence", "label"), *pairs_of(squad, random.Random(options.seed))]
    lines = ["\t".join((str(index - 1) if index else "index", *row)) for index, row in enumerate(rows)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.output, "\n".join(lines) + "\n")
    print(f"{len(rows) - 1:,} pairs in {options.output}")


if __name__ == "__main__":
    main()
