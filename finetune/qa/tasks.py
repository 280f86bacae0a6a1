"""Extractive question answering: SQuAD 1.1 and 2.0, the MRQA datasets, and one's own in either format."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import Located, WordpieceTokenizer
from electra_tf2.finetune.qa.data import Question, ids_are_unique, read_questions, split_words
from electra_tf2.finetune.qa.decoding import Decoded, decode
from electra_tf2.finetune.qa.head import AnswerHead
from electra_tf2.finetune.qa.scoring import answered_scores, squad_v2_scores
from electra_tf2.finetune.qa.windows import Window, answer_pieces, positions, windows_of
from electra_tf2.finetune.task import EmptyText, Features, Label, Prediction, Split, Task
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_json
from electra_tf2.util.progress import track


class QAExample(NamedTuple):
    """A question, its tokenised document, and its windows, one feature each."""

    question: Question
    document: Located
    windows: list[Window]


class QATask(Task):
    """Answers are spans of the document, found in overlapping windows of it.

    Args:
      v2: questions may have no answer (SQuAD 2.0).
      mrqa: files are MRQA's JSON lines; else SQuAD's JSON.
    """

    primary_metric = "f1"
    outputs = "qa"

    def __init__(
        self,
        name: str,
        config: FinetuningConfig,
        tokenizer: WordpieceTokenizer,
        *,
        v2: bool = False,
        mrqa: bool = False,
        files: Mapping[str, str] | None = None,
        held_out: float = 0.0,
    ) -> None:
        super().__init__(name, config, tokenizer, files=files, held_out=held_out)
        self.v2, self.mrqa = v2, mrqa
        self.endings = ("jsonl", "jsonl.gz") if mrqa else ("json",)

    @property
    def labels(self) -> dict[str, Label]:
        return {name: Label("int32") for name in ("start_positions", "end_positions", "is_impossible")}

    def load(self, split: str) -> Split:
        path = self.path(self.file_of(split))
        training = split == "train"
        questions = read_questions(path, self.mrqa, self.v2, training, self.config.compat == "original")
        ids_are_unique(questions, str(path))
        # Documents are held out, not questions: those about one document share its words.
        documents = list({id(question.paragraph): None for question in questions})
        kept = {documents[i] for i in self.part_of(split, range(len(documents)))}
        return self._split([question for question in questions if id(question.paragraph) in kept], split)

    def parse(self, rows: Sequence[dict[str, Any]], where: str) -> Split:
        """Rows with `question`, `context` and, if wanted, `id`."""
        questions = []
        for number, row in enumerate(rows, start=1):
            place = f"{where}, line {number}"
            if not isinstance(row.get("question"), str) or not isinstance(row.get("context"), str):
                raise UserError(f"{place}: `question` and `context`, both text, are needed; it has {', '.join(row)}")
            paragraph = split_words(row["context"])
            if not paragraph.words or not row["question"].strip():
                raise EmptyText(f"{place}: an empty question or context")
            questions.append(Question(str(row.get("id", number)), paragraph, row["question"], [], False))
        return self._split(questions, "new")

    def row_of_line(self, line: str) -> dict[str, Any]:
        """A question and its context with a tab between them."""
        question, tab, context = line.partition("\t")
        return {"question": question, "context": context} if tab else super().row_of_line(line)

    def _split(self, questions: Sequence[Question], split: str) -> Split:
        """The questions with their windows; `split` is "new" for --predict."""
        config, training = self.config, split == "train"
        documents = self._documents(questions)
        asked = self.tokenizer.pieces([question.text for question in questions])
        answers = self.tokenizer.pieces([question.answer for question in questions]) if training else asked
        examples: list[QAExample] = []
        features: list[Features] = []
        rows = zip(questions, asked, answers, strict=True)
        for question, question_ids, answer_ids in track(rows, f"windows of {self.name} {split}", len(questions)):
            document = documents[id(question.paragraph)]
            question_ids = question_ids[: config.max_query_length]
            room = config.max_seq_length - len(question_ids) - 3
            if room < 1:
                raise UserError(
                    f"max_seq_length {config.max_seq_length} leaves no room for a document after a question of "
                    f"{len(question_ids)} tokens: lower max_query_length"
                )
            windows = windows_of(len(document.ids), room, config.doc_stride, len(question_ids))
            found = answer_pieces(question, document, answer_ids) if training else (-1, -1)
            kept: list[Window] = []
            for window in windows:
                feature = self._feature(question, question_ids, document, window, found, training)
                if feature is not None:
                    kept.append(window)
                    features.append(feature)
            if not windows:
                raise UserError(f"{self.name}: question {question.id}: a context of control characters only")
            if kept:
                examples.append(QAExample(question, document, kept))
        if not features:
            raise UserError(f"{self.name}: no window holds an answer")
        labelled = any(question.answers or question.is_impossible for question in questions)
        return Split(examples, features, [len(example.windows) for example in examples], labelled)

    def _feature(
        self,
        question: Question,
        question_ids: np.ndarray,
        document: Located,
        window: Window,
        found: tuple[int, int],
        training: bool,
    ) -> Features | None:
        """[CLS] question [SEP] window [SEP]; None if it is not trained on."""
        special = self.tokenizer.special
        pieces = document.ids[window.start : window.start + window.length]
        first = [[special.cls], question_ids, [special.sep]]
        input_ids = np.concatenate([*first, pieces, [special.sep]]).astype(np.int32)
        segment_ids = np.zeros(len(input_ids), np.int32)
        segment_ids[window.offset :] = 1
        impossible, place = question.is_impossible, None
        if training and not impossible:
            place = positions(window, *found)
            if place is None and self.config.qa_out_of_span == "skip":
                return None
            if place is None and self.config.qa_out_of_span == "impossible":
                impossible = True
        start, end = place or (0, 0)
        labels = {"start_positions": start, "end_positions": end, "is_impossible": int(impossible)}
        return Features(input_ids, segment_ids, labels)

    def _documents(self, questions: Sequence[Question]) -> dict[int, Located]:
        """Paragraphs, by identity, to their pieces."""
        paragraphs = {id(question.paragraph): question.paragraph for question in questions}
        return dict(zip(paragraphs, self.tokenizer.located(list(paragraphs.values())), strict=True))

    # Outputs.

    def make_head(self, encoder: Encoder, seed: int) -> AnswerHead:
        return AnswerHead(f"task_specific/{self.name}", encoder.architecture.hidden_size, self.config, seed)

    def decoded(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, Decoded]:
        """id -> answers."""
        result = {}
        at = 0
        for question, document, windows in track(split.examples, f"answers of {self.name}", len(split.examples)):
            part = predictions[at : at + len(windows)]
            at += len(windows)
            result[question.id] = decode(question, document, windows, part, self.config, self.tokenizer)
        return result

    def scores(self, split: Split, predictions: Sequence[Prediction]) -> dict[str, float]:
        decoded = self.decoded(split, predictions)
        texts = {identity: _best_text(answer) for identity, answer in decoded.items()}
        answers = {question.id: question.answers for question, _, _ in split.examples}
        if not self.v2:
            answers = {identity: golds for identity, golds in answers.items() if golds}
            return answered_scores(answers, texts)
        null_odds = {identity: answer.null_odds for identity, answer in decoded.items()}
        return squad_v2_scores(answers, texts, null_odds, self.config.qa_na_threshold)

    def inputs(self, split: Split) -> list[dict[str, Any]]:
        shown = [{"id": question.id, "question": question.text} for question, _, _ in split.examples]
        if not split.labelled:
            return shown
        return [row | {"gold": example.question.answers} for row, example in zip(shown, split.examples, strict=True)]

    def answers(self, split: Split, predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
        result = []
        for identity, answer in self.decoded(split, predictions).items():
            record: dict[str, Any] = {"id": identity, "prediction_text": _best_text(answer)}
            if self.v2:
                record["null_odds"] = answer.null_odds
                if answer.null_odds > self.config.qa_na_threshold:
                    record["prediction_text"] = ""
            record["nbest"] = [{"text": text, "probability": probability} for text, probability in answer.nbest]
            result.append(record)
        return result

    def write_submission(self, name: str, split: Split, predictions: Sequence[Prediction], folder: Path) -> list[Path]:
        """The official scripts' files: best texts by id, null odds (SQuAD 2.0); and the n-best lists."""
        decoded = self.decoded(split, predictions)
        nbest = {i: [{"text": t, "probability": p} for t, p in answer.nbest] for i, answer in decoded.items()}
        files: dict[str, Any] = {"preds": {i: _best_text(answer) for i, answer in decoded.items()}, "nbest": nbest}
        if self.v2:
            files["null_odds"] = {i: answer.null_odds for i, answer in decoded.items()}
        paths = []
        for kind, content in files.items():
            paths.append(folder / f"{self.name}_{name}_{kind}.json")
            write_json(paths[-1], content)
        return paths


def _best_text(decoded: Decoded) -> str:
    """The best answer that is not empty."""
    return next((text for text, _ in decoded.nbest if text), "")
