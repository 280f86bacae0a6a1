"""The part of a card's program that finds the words of a text and prints their tags, whatever runs the network."""

import json
from collections.abc import Mapping
from typing import Any

from electra_tf2.finetune.tasks import signs
from electra_tf2.finetune.tasks.tags import letters_in_file

EXAMPLE_TEXT = "The old man bought a house."
EXAMPLE_WORDS = "The old man bought a house ."


def lines_of_words(state: Mapping[str, Any]) -> str:
    """Lines that make the `words` of a text; of one that is split at signs also their `starts` in `text`."""
    if not state.get("splits_at_signs"):
        return f'words = "{EXAMPLE_WORDS}".split()  # as in the training file, where signs of punctuation may be words'
    return f"""{signs.source()}

text = "{EXAMPLE_TEXT}"
starts = []  # places of the words' first characters in the text
words = []
for start, word in words_at_signs(text):
    starts.append(start)
    words.append(word)"""


def imports_of_words(state: Mapping[str, Any]) -> str:
    """The imports that `lines_of_words` needs."""
    if state.get("splits_at_signs"):
        return "import re\nimport unicodedata"
    return ""


def lines_of_tags(state: Mapping[str, Any]) -> str:
    """Lines that print the tags of the words whose numbers are in `read`, given the `scores` of their `labels`."""
    if "encoding" in state:
        return _tags_of_spans(state)
    return _SINGLE_TAGS


_SINGLE_TAGS = """for number, of_labels in zip(read, scores):
    best = of_labels.argmax()
    print(words[number], labels[best], np.exp(of_labels[best]))
"""


_PLACES_OF_SPANS = """
# The spans: their first character, the one behind their last, and their type.
for number, label in zip(read, sequence):
    end = starts[number] + len(words[number])
    if labels[label][0] in "BS":
        first = starts[number]
    if labels[label][0] in "ES":
        print(first, end, labels[label][2:], text[first:end])
"""


_LIKELIEST = """
# Labels are BIOES (B: first word of a span, I: inside, E: last, S: a span of one word, O: outside). The likeliest
# ones that make up whole spans are found by Viterbi's algorithm.
def may_follow(label, previous):
    if previous[0] in "BI":
        return label[0] in "IE" and label[1:] == previous[1:]
    return label[0] in "OBS"


def likeliest(scores, labels):
    # The number of each word's label.
    if not scores:
        return []
    may_be_first = [label[0] in "OBS" for label in labels]
    may_be_last = [label[0] in "OES" for label in labels]
    steps = np.full([len(labels), len(labels)], -np.inf)  # from a word's label to the next word's
    for i, previous in enumerate(labels):
        for j, label in enumerate(labels):
            if may_follow(label, previous):
                steps[i, j] = 0
    best = np.where(may_be_first, scores[0], -np.inf)
    best_previous = []
    for of_labels in scores[1:]:
        sums = best[:, np.newaxis] + steps
        best_previous.append(sums.argmax(axis=0))
        best = sums.max(axis=0) + of_labels
    best = np.where(may_be_last, best, -np.inf)
    sequence = [best.argmax()]
    for previous in reversed(best_previous):
        sequence.insert(0, previous[sequence[0]])
    return sequence

"""


def _tags_of_spans(state: Mapping[str, Any]) -> str:
    """Lines that find the labels of all words together, as `SpanDecoder` does, and print them as tags."""
    encoding = state["encoding"]
    types = {label.partition("-")[2] for label in state["labels"]} - {""}
    kind = "label[1:]"
    if types == {"_"}:  # the training file had letters alone
        kind = '""'
    places = ""
    if state.get("splits_at_signs"):
        places = _PLACES_OF_SPANS
    return f"""{_LIKELIEST}
sequence = likeliest(scores, labels)
letters = {json.dumps(letters_in_file(encoding))}  # of the training file, which had {encoding}
tags = [letters[label[0]] + {kind} for label in labels]
for number, label, of_labels in zip(read, sequence, scores):
    of_this_tag = np.array(tags) == tags[label]  # two labels may be one tag
    print(words[number], tags[label], np.exp(of_labels)[of_this_tag].sum())
{places}"""
