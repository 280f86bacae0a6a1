"""Extractive question answering: SQuAD 1.1 and 2.0, the MRQA datasets, and one's own in either format.

question and context --qa_files--> Question --encode--> windows of the document --AnswerHead--> starts and ends
--qa_answers--> text of the document
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.files.tables import TableRow
from electra_tf2.files.writing import write_json
from electra_tf2.finetune.tasks.qa_answers import NO_ANSWER, Decoded, candidate_spans, decode
from electra_tf2.finetune.tasks.qa_files import id_of_row, number_of_row, question_of, read_questions
from electra_tf2.finetune.tasks.qa_head import AnswerHead
from electra_tf2.finetune.tasks.qa_scores import COMPARISONS, answered_scores, squad_v2_scores
from electra_tf2.finetune.tasks.qa_windows import (
    DocumentWindow,
    QAExample,
    answer_pieces,
    document_windows,
    original_answer_pieces,
)
from electra_tf2.finetune.tasks.question_columns import QuestionColumns
from electra_tf2.finetune.tasks.questions import Question, check_ids_are_unique, split_words, with_ids
from electra_tf2.finetune.tasks.task import Features, Label, Prediction, Split, Task, TaskData
from electra_tf2.formats.folders import is_shipped
from electra_tf2.model.encoder import Encoder
from electra_tf2.settings.columns import ANSWERS, CONTEXT, QUESTION
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import counted, say, track, warn

_ENDINGS_OF_TABLES = ("parquet", "arrow", "ndjson", "csv", "tsv", "tab")
# `Split.golds` of questions that may have no answer.
WITH_ANSWER = "with an answer"
WITHOUT_ANSWER = "no answer"


class QATask(Task):
    """Questions answered by spans of a document, which is read in overlapping windows.

    Args:
      v2: whether questions may have no answer (SQuAD 2.0); None: if some of the training data have none.
      mrqa: whether files have the names of MRQA's JSON lines, else those of SQuAD's JSON. How a file is read, its
        content decides.
      f1_of: what the F1 of answers counts, one of settings.metrics.F1_OF.
      text_columns: a table's columns of questions and contexts; default: those with a usual name.
      label_column: a table's column of answers; default: the one with a usual name.
    """

    primary_metric = "f1"
    text_keys = (("question", "context"),)
    holds_tabs = True
    target: bool | None = None  # whether questions may have no answer
    word_for_labels = ""

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        v2: bool | None = None,
        mrqa: bool = False,
        f1_of: str = "words",
        text_columns: Sequence[str] = ("", ""),
        label_column: str = "",
        **files: Any,
    ) -> None:
        json_endings = ("json", "jsonl")
        if mrqa:
            json_endings = ("jsonl", "json")
        super().__init__(name, config, tokenizer, endings=(*json_endings, *_ENDINGS_OF_TABLES), **files)
        self.target = v2
        self.comparison = COMPARISONS[f1_of]
        question_column, context_column = text_columns
        self.columns = QuestionColumns(question_column, context_column, label_column)
        self.test_splits = tuple(filter(self.files.exists, ("test",)))  # SQuAD and MRQA have none
        self._decoded: tuple[Any, list[tuple[str, Decoded]]] = (None, [])  # predictions, and what they say

    @property
    def v2(self) -> bool:
        return bool(self.target)

    # Files to examples.

    def read(self, split: str) -> TaskData:
        keeps_impossible = self.target is not False
        as_original = self.config.compat == "original"
        files = []
        for path in self.files.paths(split):
            files.append(read_questions(path, keeps_impossible, split == "train", as_original, self.columns))
        questions = with_ids(files)
        check_ids_are_unique(questions, str(self.files.path(split)))
        may_be_impossible = self.target
        if may_be_impossible is None:
            may_be_impossible = any(question.is_impossible for question in questions)
        return TaskData(questions, may_be_impossible)

    def name_columns(self, texts: Sequence[str], label: str = "") -> None:
        question = self.columns.question
        context = self.columns.context
        if texts:
            self.keys_of_texts(len(texts))  # raises the error about their number
            question, context = texts
        self.columns = QuestionColumns(question, context, label or self.columns.answer)

    @property
    def text_names(self) -> set[str]:
        return super().text_names | {*QUESTION, *CONTEXT, self.columns.question, self.columns.context} - {""}

    @property
    def label_columns(self) -> set[str]:
        return {*ANSWERS, self.columns.answer} - {""}

    def rows_of_text(self, text: str, name: str) -> list[TableRow] | None:
        """Reads the questions of a file of SQuAD or MRQA, with their answers if it has some."""
        if '"qas"' not in text or '"context"' not in text:
            return None
        if not Path(name).is_file():
            raise UserError(
                f"{name} holds SQuAD's or MRQA's JSON: give its file by its path, or a row a line, "
                '{"question": ..., "context": ...}'
            )
        rows = []
        questions = with_ids([read_questions(Path(name), v2=True, training=False)])
        for number, question in enumerate(questions, start=1):
            values: dict[str, Any] = {"id": question.id, "question": question.text, "context": question.paragraph.text}
            if question.answers:
                values["answers"] = question.answers
            rows.append(TableRow(number, values))
        return rows

    def example(self, row: dict[str, Any], where: str, index: int) -> Question:
        """Reads a question, its context and, if wanted, its id, under the names of the training data or the usual."""
        standard_row = self.columns.standard(row)
        self.columns.check_new(row, standard_row, where)
        for name in (*ANSWERS, "is_impossible"):
            standard_row.pop(name, None)
        del index
        identity = id_of_row(standard_row) or number_of_row(where)
        return question_of(standard_row, standard_row, identity, where, split_words)

    # Examples to features.

    def _say_where_it_can_go(self) -> None:
        """Says before the training which flags it needs for a model that is to leave for Hugging Face."""
        has_joint_head = self.config.joint_prediction
        has_classifier = self.v2 and self.config.answerable_classifier
        if has_joint_head and has_classifier:
            say(
                f"note: {self.name}: for a model that can leave for Hugging Face train with --no-joint-prediction "
                "--no-answerable-classifier: no class there predicts the end of an answer from its start, or has a "
                "layer that tells if there is an answer"
            )
        elif has_joint_head:
            say(
                f"note: {self.name}: the end of an answer is predicted from its start, which no class of Hugging Face "
                "does: --no-joint-prediction trains a model that can leave for it"
            )
        elif has_classifier:
            say(
                f"note: {self.name}: the layer that tells if there is an answer does not leave for Hugging Face: "
                "--no-answerable-classifier trains a model that leaves whole"
            )

    @property
    def labels(self) -> dict[str, Label]:
        return {name: Label("int32") for name in ("start_positions", "end_positions", "is_impossible")}

    def encode(self, examples: Sequence[Question], split: str) -> Split:
        """Makes the windows of each question. Questions of which no window is learned are left out."""
        training = split == "train"
        as_original = self.config.compat == "original"
        if training:
            if is_shipped(self.config.init_checkpoint):
                say(
                    f"note: {self.name}: the shipped models are too small to find answers well, which takes more than "
                    "labels do: docs/own_tasks.md#questions says which models can"
                )
            self._say_where_it_can_go()
        paragraphs = {id(question.paragraph): question.paragraph for question in examples}
        documents = dict(zip(paragraphs, self.tokenizer.located(list(paragraphs.values())), strict=True))
        asked = self.tokenizer.pieces([question.text for question in examples])
        answers = asked
        if training and as_original:  # which looks for an answer's own pieces
            answers = self.tokenizer.pieces([question.answer for question in examples])
        encoded: list[QAExample] = []
        features: list[Features] = []
        rows = zip(examples, asked, answers, strict=True)
        for question, question_ids, answer_ids in track(rows, f"windows of {self.name} {split}", len(examples)):
            document = documents[id(question.paragraph)]
            answer = None
            if training and not question.is_impossible:
                if as_original:
                    answer = original_answer_pieces(question, document, answer_ids)
                else:
                    answer = answer_pieces(question, document)
            windows = []
            for window in self._windows(question, question_ids, document):
                labels = self._window_labels(window, question, answer)
                if labels is not None:
                    features.append(self._input(window, question_ids, document, labels))
                    windows.append(window)
            if windows:
                encoded.append(QAExample(question, document, windows))
        if not features:
            raise UserError(f"{self.name}: no window holds an answer")
        labelled = any(question.answers or question.is_impossible for question in examples)
        if not labelled and split in self.test_splits:
            self.warn_of_no_labels(split)
        counts = [len(example.windows) for example in encoded]
        golds: list[str] = []
        if labelled and self.v2:
            golds = [_gold(example.question, training) for example in encoded]
        elif labelled:
            self._warn_of_unanswered(encoded, split)
        # Questions are cut, while documents are read in windows.
        return Split(encoded, features, counts, labelled, golds=golds, longest_text=self.config.max_query_length)

    def _warn_of_unanswered(self, encoded: Sequence[QAExample], split: str) -> None:
        """Warns of questions without an answer, which cannot be scored where the model always gives one."""
        unanswered = sum(1 for example in encoded if not example.question.answers)
        if unanswered:
            warn(
                f"{self.name} {split}: {unanswered:,} of {counted(len(encoded), 'question')} have no answer and are "
                "not scored: a model learns to give none of training data with such questions"
            )

    def _windows(self, question: Question, question_ids: np.ndarray, document: Located) -> list[DocumentWindow]:
        """Makes the windows of a document beside a question, which is cut to max_query_length."""
        asked = min(len(question_ids), self.config.max_query_length)
        room = self.config.max_seq_length - asked - 3
        if room < 1:
            raise UserError(
                f"max_seq_length {self.config.max_seq_length} leaves no room for a document after a question of "
                f"{asked} tokens: lower max_query_length"
            )
        stride = self.config.doc_stride
        if self.config.compat != "original":
            stride = min(stride, max(1, room // 2))  # else windows of short inputs would not overlap
        windows = document_windows(len(document.ids), room, stride, asked)
        if not windows:
            raise UserError(f"{question.where}: a context of control characters only")
        return windows

    def _window_labels(
        self, window: DocumentWindow, question: Question, answer: tuple[int, int] | None
    ) -> dict[str, int] | None:
        """Makes the labels of a window; None: it lacks the answer and is not learned."""
        place = None
        if answer is not None:
            place = window.positions(*answer)
        impossible = question.is_impossible
        if answer is not None and place is None:
            if self.config.qa_out_of_span == "skip":
                return None
            impossible = self.config.qa_out_of_span == "impossible"
        start, end = place or (0, 0)  # [CLS]
        return {"start_positions": start, "end_positions": end, "is_impossible": int(impossible)}

    def _input(
        self, window: DocumentWindow, question_ids: np.ndarray, document: Located, labels: dict[str, int]
    ) -> Features:
        """[CLS] question [SEP] window [SEP], the window with segment 1."""
        special = self.tokenizer.special
        pieces = document.ids[window.start : window.start + window.length]
        question = question_ids[: window.question_length]
        input_ids = np.concatenate([[special.cls], question, [special.sep], pieces, [special.sep]]).astype(np.int32)
        segment_ids = (np.arange(len(input_ids)) >= window.offset).astype(np.int32)
        return Features(input_ids, segment_ids, labels, len(question_ids) - len(question))

    # The head.

    def make_head(self, encoder: Encoder, seed: int) -> "AnswerHead":
        return AnswerHead(self.scope, encoder.architecture.hidden_size, self.config, seed)

    # Scores and answers.

    def decoded(self, split: Split, predictions: Sequence[Prediction]) -> list[tuple[str, Decoded]]:
        """Makes (id, answers) of each example. Ids in a file to be answered may occur twice."""
        if self._decoded[0] is predictions:  # which scores and answers both ask for
            return self._decoded[1]
        windows = [window for example in split.examples for window in example.windows]
        spans = split.by_example(candidate_spans(windows, predictions, self.config))
        rows = zip(split.examples, split.by_example(predictions), spans, strict=True)
        decoded = []
        for example, outputs, of_windows in track(rows, f"answers of {self.name}", len(split.examples)):
            answer = decode(example, outputs, of_windows, self.config, self.tokenizer)
            decoded.append((example.question.id, answer))
        self._decoded = predictions, decoded
        return decoded

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        decoded = dict(self.decoded(split, predictions))
        texts = {identity: answer.best.text for identity, answer in decoded.items()}
        answers = {question.id: question.answers for question, _, _ in split.examples}
        if not self.v2:
            answers = {identity: golds for identity, golds in answers.items() if golds}
            return answered_scores(answers, texts, self.comparison)
        null_odds = {identity: answer.null_odds for identity, answer in decoded.items()}
        return squad_v2_scores(
            answers,
            texts,
            null_odds,
            self.config.qa_na_threshold,
            self.comparison,
            official_thresholds=self.config.compat == "original",
        )

    def num_scored(self, split: Split) -> int:
        if self.v2:
            return len(split.examples)
        return sum(1 for example in split.examples if example.question.answers)

    def majority(self, split: Split) -> dict[str, float]:
        """Computes the scores of never giving an answer; {} if all questions have one."""
        if not self.v2:
            return {}
        share = 100.0 * split.golds.count(WITHOUT_ANSWER) / len(split.golds)
        return {"exact": share, "f1": share}

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        rows = []
        for question, _, _ in split.examples:
            row: dict[str, Any] = {"id": question.id, "question": question.text}
            if split.labelled:
                row["gold"] = question.answers
            rows.append(row)
        return rows

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        """Makes the best answer and others.

        `start`, `end`: its characters in the context. These and `probability` are null if there is none.
        """
        result = []
        for identity, answer in self.decoded(split, predictions):
            best = answer.best
            if self.v2 and answer.null_odds > self.config.qa_na_threshold:
                best = NO_ANSWER
            record: dict[str, Any] = {
                "id": identity,
                "prediction_text": best.text,
                "probability": best.probability if best.text else None,
                "start": best.start,
                "end": best.end,
            }
            if self.v2:
                record["null_odds"] = answer.null_odds
            record["nbest"] = [candidate._asdict() for candidate in answer.nbest]
            result.append(record)
        return result

    def write_submission(self, name: str, split: Split, answers: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
        """Writes files for the official scripts: best texts and null odds (SQuAD 2.0) by id, and n-best lists."""
        files: dict[str, dict[str, Any]] = {"preds": {}, "nbest": {}}
        if self.v2:
            files["null_odds"] = {}
        for answer in answers:
            nbest = []
            for candidate in answer["nbest"]:
                nbest.append({"text": candidate["text"], "probability": candidate["probability"]})
            # The likeliest text, whatever the odds of there being none, which the scripts weigh themselves.
            texts = [candidate["text"] for candidate in nbest if candidate["text"]]
            files["preds"][answer["id"]] = texts[0] if texts else ""
            files["nbest"][answer["id"]] = nbest
            if self.v2:
                files["null_odds"][answer["id"]] = answer["null_odds"]
        paths = []
        for kind, content in files.items():
            paths.append(folder / f"{self.name}_{name}_{kind}.json")
            write_json(paths[-1], content)
        return paths

    def state(self) -> dict[str, Any]:
        return {"v2": self.v2}

    def check_state(self, saved: dict[str, Any]) -> None:
        if self.target is None:
            self.target = bool(saved.get("v2", False))


def _gold(question: Question, training: bool) -> str:
    """Tells whether a question has an answer, as it is learned or scored: by the answers alone in an evaluation."""
    is_impossible = not question.answers
    if training:
        is_impossible = question.is_impossible
    return WITHOUT_ANSWER if is_impossible else WITH_ANSWER
