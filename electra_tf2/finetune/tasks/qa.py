"""Extractive question answering: SQuAD 1.1 and 2.0, the MRQA datasets, and one's own in either format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.tasks import qa_answers, qa_files
from electra_tf2.finetune.tasks.exports import GraphTokenizer, Predict, Signature, strings
from electra_tf2.finetune.tasks.files import same_text
from electra_tf2.finetune.tasks.heads import AnswerHead
from electra_tf2.finetune.tasks.task import Features, Label, Prediction, Split, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_json
from electra_tf2.util.progress import track


class QATask(Task):
    """Answers are spans of the document, found in overlapping windows of it.

    Args:
      v2: questions may have no answer (SQuAD 2.0).
      mrqa: files are called as MRQA's JSON lines are; else as SQuAD's JSON. What is in them says what they are.
      f1_of: what answers are compared by, of settings.metrics.F1_OF.
    """

    primary_metric = "f1"
    outputs = "qa"
    num_texts = 2
    text_keys = (("question", "context"),)

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        v2: bool = False,
        mrqa: bool = False,
        f1_of: str = "words",
        **own: Any,
    ) -> None:
        super().__init__(name, config, tokenizer, **own)
        self.v2, self._comparison = v2, qa_answers.COMPARISONS[f1_of]
        names = ("jsonl", "json") if mrqa else ("json", "jsonl")
        self.endings = (*names, "parquet", "arrow")
        self.test_splits = tuple(filter(self.exists, ("test",)))  # SQuAD and MRQA have none

    @property
    def labels(self) -> dict[str, Label]:
        return {name: Label("int32") for name in ("start_positions", "end_positions", "is_impossible")}

    def load(self, split: str) -> Split:
        training = self.file_of(split) == "train"  # so that both parts of one file are of the same documents
        compat, questions = self.config.compat == "original", list[qa_files.Question]()
        for path in self.paths(self.file_of(split)):
            questions += qa_files.read_questions(path, self.v2, training, compat)
        qa_files.ids_are_unique(questions, str(self.path(self.file_of(split))))
        # Documents are held out, not questions: those about one document share its words.
        documents = list({question.paragraph.text: None for question in questions})
        kept = set(self.part_of(split, documents, same_text))
        return self.split_of([question for question in questions if question.paragraph.text in kept], split)

    @property
    def longest_text(self) -> int:
        """That of a question; documents are read in windows."""
        return self.config.max_query_length

    def example(self, row: dict[str, Any], where: str, number: int) -> qa_files.Question:
        """Reads `question`, `context` and, if wanted, `id`."""
        asked = {name: value for name, value in row.items() if name not in ("answers", "is_impossible")}
        return qa_files.question_of(asked, asked, str(row.get("id", number + 1)), where, qa_files.split_words)

    def row_of_line(self, line: str) -> dict[str, Any]:
        """A question and its context with a tab between them."""
        question, tab, context = line.partition("\t")
        return {"question": question, "context": context} if tab else super().row_of_line(line)

    def split_of(self, questions: Sequence[qa_files.Question], split: str) -> Split:
        """The questions with their windows."""
        config, training, special = self.config, split == "train", self.tokenizer.special
        paragraphs = {id(question.paragraph): question.paragraph for question in questions}
        documents = dict(zip(paragraphs, self.tokenizer.located(list(paragraphs.values())), strict=True))
        asked = self.tokenizer.pieces([question.text for question in questions])
        original = config.compat == "original"
        answers = self.tokenizer.pieces([one.answer for one in questions]) if training and original else asked
        examples: list[qa_files.QAExample] = []
        features: list[Features] = []
        rows = zip(questions, asked, answers, strict=True)
        for question, question_ids, answer_ids in track(rows, f"windows of {self.name} {split}", len(questions)):
            document = documents[id(question.paragraph)]
            cut = max(0, len(question_ids) - config.max_query_length)
            question_ids = question_ids[: config.max_query_length]
            room = config.max_seq_length - len(question_ids) - 3
            if room < 1:
                raise UserError(
                    f"max_seq_length {config.max_seq_length} leaves no room for a document after a question of "
                    f"{len(question_ids)} tokens: lower max_query_length"
                )
            windows, kept = qa_files.windows_of(len(document.ids), room, config.doc_stride, len(question_ids)), []
            if not windows:
                raise UserError(f"{self.name}: question {question.id}: a context of control characters only")
            found = None
            if training and not question.is_impossible and original:
                found = qa_files.original_answer_pieces(question, document, answer_ids)
            elif training and not question.is_impossible:
                found = qa_files.answer_pieces(question, document)
            for window in windows:
                place, impossible = found and qa_files.positions(window, *found), question.is_impossible
                if found and place is None:
                    if config.qa_out_of_span == "skip":
                        continue
                    impossible = config.qa_out_of_span == "impossible"
                pieces = document.ids[window.start : window.start + window.length]
                ids = np.concatenate([[special.cls], question_ids, [special.sep], pieces, [special.sep]])
                segment_ids = (np.arange(len(ids)) >= window.offset).astype(np.int32)
                start, end = place or (0, 0)
                labels = {"start_positions": start, "end_positions": end, "is_impossible": int(impossible)}
                features.append(Features(ids.astype(np.int32), segment_ids, labels, cut))
                kept.append(window)
            if kept:
                examples.append(qa_files.QAExample(question, document, kept))
        if not features:
            raise UserError(f"{self.name}: no window holds an answer")
        labelled = any(question.answers or question.is_impossible for question in questions)
        return Split(examples, features, [len(example.windows) for example in examples], labelled)

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> AnswerHead:
        return AnswerHead(self.scope, encoder.architecture.hidden_size, self.config, seed)

    def signature(self, tokenizer: GraphTokenizer, predict: Predict) -> Signature:
        """string [B] twice -> answer string [B] as wordpieces spell it, its probability among the spans that were
        considered, start and end in tokens [B, L], and the logit of there being no answer (positive: none). A document
        is cut at the model's length: windows over long documents remain with run_finetuning.py --predict."""

        def answers(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
            # Questions are cut to their own limit, documents to what remains.
            asked, document = tokenizer.pieces(question)[:, : self.config.max_query_length], tokenizer.pieces(context)
            first = tf.cast(asked.row_lengths(), tf.int32) + 2
            lengths = tf.minimum(tf.cast(document.row_lengths(), tf.int32), tokenizer.max_length - 1 - first)
            inputs = tokenizer.padded([asked, tokenizer.head_of(document, lengths)])
            found = predict(inputs)
            starts, ends, scores = qa_answers.candidates(found, first, first + lengths, self.config)
            best = tf.argmax(scores, -1, tf.int32)[:, tf.newaxis]
            start, end = (tf.gather(value, best, batch_dims=1)[:, 0] for value in (starts, ends))
            tokens = tokenizer.tokens(inputs["input_ids"], inputs["input_mask"])
            words = tf.gather(tokens, tf.ragged.range(start, end + 1), batch_dims=1)
            answer = tf.strings.reduce_join(words, separator=" ", axis=-1)
            return {
                "answer": tf.strings.regex_replace(answer, "(^| )##", ""),
                "probability": qa_answers.share_of_best(scores),
                "start": start,
                "end": end,
                "tokens": tokens,
                "no_answer_logit": found["answerable_logit"],
            }

        def example(one: qa_files.QAExample) -> dict[str, Any]:
            return {"question": one.question.text, "context": one.question.paragraph.text}

        return Signature(strings("question", "context"), answers, example)

    def served_numbers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Answers of a document's first window, which is all that a SavedModel reads of it."""
        first = [of_windows[0] for of_windows in split.by_example(predictions)]
        spans = qa_answers.spans_of([example.windows[0] for example in split.examples], first, self.config)
        return [
            {"probability": qa_answers.share_of_best(scores), "no_answer_logit": prediction["answerable_logit"]}
            for prediction, (_, _, scores) in zip(first, spans, strict=True)
        ]

    def decoded(self, split: Split, predictions: Sequence[Prediction]) -> list[tuple[str, qa_answers.Decoded]]:
        """(id, answers) of each example; ids of texts that --predict reads may occur twice."""
        windows = [window for example in split.examples for window in example.windows]
        spans = split.by_example(qa_answers.spans_of(windows, predictions, self.config))
        rows = zip(split.examples, split.by_example(predictions), spans, strict=True)
        return [
            (row[0].question.id, qa_answers.decode(*row, self.config, self.tokenizer))
            for row in track(rows, f"answers of {self.name}", len(split.examples))
        ]

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        decoded = dict(self.decoded(split, predictions))
        texts = {identity: answer.best.text for identity, answer in decoded.items()}
        answers = {question.id: question.answers for question, _, _ in split.examples}
        if not self.v2:
            answers = {identity: golds for identity, golds in answers.items() if golds}
            return qa_answers.answered_scores(answers, texts, self._comparison)
        null_odds = {identity: answer.null_odds for identity, answer in decoded.items()}
        return qa_answers.squad_v2_scores(answers, texts, null_odds, self.config.qa_na_threshold, self._comparison)

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        shown = [{"id": question.id, "question": question.text} for question, _, _ in split.examples]
        if not split.labelled:
            return shown
        return [row | {"gold": example.question.answers} for row, example in zip(shown, split.examples, strict=True)]

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """`start`, `end`: the characters of the context between which the answer stands; null of none."""
        result = []
        for identity, answer in self.decoded(split, predictions):
            best = answer.best
            if self.v2 and answer.null_odds > self.config.qa_na_threshold:
                best = qa_answers.NO_ANSWER
            record = {"id": identity, "prediction_text": best.text, "start": best.start, "end": best.end}
            odds = {"null_odds": answer.null_odds} if self.v2 else {}
            result.append(record | odds | {"nbest": [one._asdict() for one in answer.nbest]})
        return result

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """The official scripts' files: best texts by id, null odds (SQuAD 2.0); and the n-best lists."""
        decoded, v2 = dict(self.decoded(split, predictions)), self.v2
        kinds = ("preds", "nbest", "null_odds") if v2 else ("preds", "nbest")
        files: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        for identity, answer in decoded.items():
            files["preds"][identity] = answer.best.text
            files["nbest"][identity] = [{"text": one.text, "probability": one.probability} for one in answer.nbest]
            if v2:
                files["null_odds"][identity] = answer.null_odds
        paths = {kind: folder / f"{self.name}_{name}_{kind}.json" for kind in files}
        for kind, path in paths.items():
            write_json(path, files[kind])
        return list(paths.values())
