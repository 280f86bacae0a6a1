"""Scores sentences with a model: accuracies on minimal pairs, n-best lists in a new order, or plain lines with scores.

  electra score --model electric/ --pairs blimp/ --output accuracy.json
  electra score --model bert/ --nbest test.jsonl --nbest-dev dev.jsonl \\
      --output reranked.jsonl
  electra score --model electra/ --text lines.txt --output scores.jsonl

The score is a pseudo-log-likelihood: the sum of log p(token | the others), Electric's in one pass, BERT's and ELECTRA's
by masking each token in turn. With --method detector it is the sum of log D(original), in one pass, of any model that
detects replaced tokens.

Pairs are JSON lines with `sentence_good`, `sentence_bad` and a phenomenon (`UID`, else the file's name), as BLiMP has
them; a folder's files are read together.

N-best lists are JSON lines {"hypotheses": [{"text": ..., "score": ...}, ...], "reference": ...}; they are sorted
by f + lambda * score, lambda chosen on the development file by word error rate, or given by --weight.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.files.content import is_no_data
from electra_tf2.files.reading import field, read_json_lines, read_text
from electra_tf2.files.writing import check_writable, write_atomically, write_json
from electra_tf2.inference import ranking
from electra_tf2.training.shared_hparams import PRECISIONS
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, warn

if TYPE_CHECKING:
    import numpy as np


def main() -> int:
    values = flags.FLAGS
    if values.output:
        check_writable(values.output)
    inputs = [name for name in ("pairs", "nbest", "text") if values[name].value]
    if not values.model or len(inputs) != 1:
        raise UserError("--model and one of --pairs, --nbest, --text are needed")
    if not values.nbest and (values.weight is not None or values.nbest_dev):
        raise UserError("--weight and --nbest-dev are for --nbest")
    if values.pairs:
        score_pairs()
    elif values.nbest:
        score_nbest()
    else:
        score_text()
    return 0


def score_pairs() -> None:
    """Prints the accuracy of each phenomenon."""
    values = flags.FLAGS
    folder = Path(values.pairs)
    paths = [folder]
    if folder.is_dir():
        paths = sorted(path for path in folder.glob("*.jsonl") if not is_no_data(path.name))
    good_texts: list[str] = []
    bad_texts: list[str] = []
    phenomena: list[str] = []
    for path in paths:
        for line_number, row in read_json_lines(path, "--pairs"):
            where = f"--pairs {path}, line {line_number}"
            good_texts.append(field(row, values.good_field, str, where))
            bad_texts.append(field(row, values.bad_field, str, where))
            phenomena.append(str(row.get(values.phenomenon_field, path.stem)))
    if not phenomena:
        raise UserError(f"--pairs: {folder} holds no pairs{' in .jsonl files' if folder.is_dir() else ''}")
    good_scores, bad_scores = scores([good_texts, bad_texts])
    accuracies = ranking.accuracy(phenomena, good_scores, bad_scores)
    width = max(map(len, accuracies))
    for name, accuracy in accuracies.items():
        print(f"{name:{width}} {accuracy:6.2f}")
    if values.output:
        write_json(values.output, {"pairs": len(phenomena), "accuracy": accuracies})


def score_nbest() -> None:
    """Writes the re-ranked lists, and prints word error rates if all have references."""
    values = flags.FLAGS
    if (values.weight is None) == (values.nbest_dev is None):
        raise UserError("--nbest needs either --nbest-dev, a file to choose lambda on, or --weight")
    if not values.output:
        raise UserError("--nbest needs --output, the file of re-ranked lists")
    lists = ranking.read_lists(values.nbest, "--nbest")
    dev = []
    if values.nbest_dev is not None:
        dev = ranking.read_lists(values.nbest_dev, "--nbest-dev", references=True)
    all_scores = scores([hypotheses.texts for hypotheses in [*lists, *dev]])
    list_scores = all_scores[: len(lists)]
    weight = values.weight
    if weight is None:
        weight, rates = ranking.best_weight(dev, all_scores[len(lists) :])
        print(f"lambda {weight:g}: word error rate {rates[weight]:.2f} on {values.nbest_dev}, {rates[0.0]:.2f} without")
    rows = []
    for hypotheses, hypothesis_scores in zip(lists, list_scores, strict=True):
        rows.append(ranking.reordered(hypotheses, hypothesis_scores, weight))
    _write(rows, "lists")
    if all(hypotheses.reference is not None for hypotheses in lists):
        before = ranking.rate_at(lists, list_scores, 0.0)
        after = ranking.rate_at(lists, list_scores, weight)
        print(f"word error rate {after:.2f} with lambda {weight:g}, {before:.2f} without")


def score_text() -> None:
    """Writes each line with its score."""
    lines = [line for line in read_text(flags.FLAGS.text, "--text").split("\n") if line.strip()]
    if not lines:
        raise UserError(f"--text: {flags.FLAGS.text} has no lines")
    [line_scores] = scores([lines])
    rows = [{"text": line, "score": score} for line, score in zip(lines, line_scores.tolist(), strict=True)]
    _write(rows, "lines")


def _write(rows: list[dict[str, Any]], what: str) -> None:
    """Writes JSON lines to --output, or prints them if it is not given."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if flags.FLAGS.output:
        write_atomically(flags.FLAGS.output, "".join(f"{line}\n" for line in lines))
        print(f"wrote {flags.FLAGS.output}: {len(lines):,} {what}")
    else:
        print("\n".join(lines))


def scores(lists: "list[list[str]]") -> "list[np.ndarray]":
    """For each list float32 [texts], the scores of its texts. Each distinct text is scored once."""
    import numpy as np

    import electra_tf2
    from electra_tf2.corpus.encoding import LongTexts
    from electra_tf2.corpus.unknown_tokens import unknown_tokens

    values = flags.FLAGS
    model = electra_tf2.load(values.model, generator=values.generator, precision=values.precision)
    note = model.scorer(values.method, values.mask_prob).note
    if note:
        print(f"note: {note}", file=sys.stderr)
    distinct: dict[str, None] = {}  # a set would have another order in each process
    for texts in lists:
        distinct |= dict.fromkeys(texts)
    shortest_first = sorted(distinct, key=len)
    score_by_text: dict[str, float] = {}
    with (
        warnings.catch_warnings(record=True) as caught,
        Progress("sentence", len(shortest_first), unit="sentences", file=sys.stderr) as progress,
    ):
        warnings.simplefilter("always")
        for start in range(0, len(shortest_first), values.batch_size):
            batch = shortest_first[start : start + values.batch_size]
            batch_scores = model.score(batch, values.batch_size, values.mask_prob, values.method)
            score_by_text.update(zip(batch, batch_scores.tolist(), strict=True))
            progress.update(start + len(batch))
    # One warning for all batches.
    cut = [warning.message for warning in caught if isinstance(warning.message, LongTexts)]
    if cut:
        warn(LongTexts.merged(cut, len(shortest_first), model.max_length))
    ids = model.tokenizer.pieces(shortest_first)
    unknown = unknown_tokens(model.tokenizer, ids, [[text] for text in shortest_first])
    if unknown is not None:
        warn(unknown)
    all_scores = []
    for texts in lists:
        all_scores.append(np.array([score_by_text[text] for text in texts], np.float32))
    return all_scores


flags.DEFINE_string("model", None, "model: a run, a folder, a shipped model's name, a Hugging Face directory or TF1's")
flags.DEFINE_string("generator", None, "generator of a discriminator that comes without one: as --model")
flags.DEFINE_enum(
    "method", "likelihood", ["likelihood", "detector"], "what is summed: log p(token | the others), or log D(original)"
)
flags.DEFINE_string("pairs", None, "JSON lines of sentence pairs, or a folder of such files")
flags.DEFINE_string("good_field", "sentence_good", "field of --pairs that holds the better sentence of a pair")
flags.DEFINE_string("bad_field", "sentence_bad", "field of --pairs that holds the worse sentence of a pair")
flags.DEFINE_string("phenomenon_field", "UID", "field of --pairs that names what a pair is about; else the file's name")
flags.DEFINE_string("nbest", None, "JSON lines of hypotheses to re-rank")
flags.DEFINE_string("nbest_dev", None, "JSON lines of hypotheses with references, on which lambda is chosen")
flags.DEFINE_float("weight", None, "lambda, weight of the model's scores in --nbest; default: chosen on --nbest-dev")
flags.DEFINE_string("text", None, "file of sentences to score, one a line")
flags.DEFINE_string("output", None, "file of scores to write")
flags.DEFINE_integer("batch_size", 64, "number of sentences, or of masked copies, in a pass", lower_bound=1)
flags.DEFINE_float("mask_prob", None, "share of tokens that an ELECTRA's pre-training masked; default: what is known")
flags.DEFINE_enum("precision", "float32", PRECISIONS, "type of the arithmetic")


def command() -> None:
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
