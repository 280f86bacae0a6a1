"""Every kind of task goes every way: bad rows, empty and long texts, trials that are killed, prediction, exports."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from electra_tf2.exports import exportable, litert, onnx, saved_model
from electra_tf2.exports.exportable import check_inputs
from electra_tf2.finetune.tasks.task import EmptyText
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.configured import embeds
from electra_tf2.inference.predictor import Predictor, parse
from electra_tf2.settings.built_in import KINDS
from electra_tf2.training.checkpoints import Checkpoints
from electra_tf2.util.errors import UserError
from tests.finetune.test_prompting import SIZES, SPECIAL, WORDS, coco_lm_in
from tests.finetune.test_run_finetuning import line_of, results, run
from tests.support import exports
from tests.support.finetuning import task as make_task
from tests.support.finetuning import write_lines

LONG = "the file of names " * 30


class Kind(NamedTuple):
    """A small task of a kind.

    rows: of its training and its development data. bad: a row that is wrong, and what is said of it. empty, long: rows
    to be answered, without a text and with one that is too long. described: the task's description, of one's own.
    hparams: further ones.
    """

    task: str
    file: str
    rows: list[str]
    bad: tuple[str, str]
    empty: dict[str, Any]
    long: dict[str, Any]
    described: dict[str, Any] | None = None
    hparams: Mapping[str, Any] = {}


def lines(*rows: dict[str, Any]) -> list[str]:
    return [json.dumps(row) for row in rows]


WORDS_OF = ["the file is open", "no error in the list", "all names of the list", "an error of the file"]
_TEXTS = lines(*({"text": text, "label": "yes" if "error" in text else "no"} for text in WORDS_OF))
_NUMBERS = lines(*({"text": text, "label": number} for number, text in enumerate(WORDS_OF)))
_WIC = {"sentence1": "the file", "sentence2": "a file is open", "start1": 4, "end1": 8, "start2": 2, "end2": 6}
_TAGS = ["the B-NP", "file I-NP", "is O", "", "no O", "error B-VP", ""]
_QA = {"question": "what is it?", "context": "the file is open", "answers": [{"text": "file", "answer_start": 4}]}
_COPA = {"premise": "the file", "question": "cause", "choice1": "a list", "choice2": "no error", "label": 0, "idx": 0}
_PAIRS = [{"text": text, "positive": f"{text} all"} for text in WORDS_OF]
_SCORED = [{"text1": one, "text2": other, "score": number} for number, (one, other) in enumerate(
    [("the file", "a file"), ("no error", "the list"), ("all names", "names")])]  # fmt: skip

TASKS = {
    "classification": Kind(
        "mine", "jsonl", _TEXTS, ('{"text": 3, "label": "no"}', "text must be text, got 3"),
        {"text": " "}, {"text": LONG}, {"type": "classification"},
    ),
    "regression": Kind(
        "mine", "jsonl", _NUMBERS, ('{"text": "a", "label": "x"}', "the label must be a number, got 'x'"),
        {"text": " "}, {"text": LONG}, {"type": "regression"},
    ),
    "spans": Kind(
        "wic", "jsonl", lines(_WIC | {"label": True}, _WIC | {"label": False}),
        (json.dumps(_WIC | {"label": True, "end1": 99}), "characters 4 to 99 are beyond the text of 8 characters"),
        _WIC | {"sentence2": " "}, _WIC | {"sentence2": LONG},
    ),
    "tagging": Kind("chunk", "txt", _TAGS, ("alone", "a word and a tag are needed"), {"text": " "}, {"text": LONG}),
    "qa": Kind(
        "mine", "jsonl", lines(*(_QA | {"id": str(number)} for number in range(4))),
        ('{"question": 3, "context": "a"}', "the field 'question' is missing or of the wrong type"),
        {"question": "?", "context": " "}, {"question": "?", "context": LONG}, {"type": "qa"},
    ),
    "choice": Kind(
        "copa", "jsonl", lines(_COPA, _COPA | {"label": 1, "idx": 1}),
        (json.dumps(_COPA | {"label": 2}), "the label must be 0 or 1, got 2"),
        _COPA | {"choice2": " "}, _COPA | {"premise": LONG},
    ),
    "embedding": Kind(
        "mine", "jsonl", lines(*_PAIRS), ('{"positive": "a"}', "no text"), {"text": " "}, {"text": LONG},
        {"type": "embedding"}, {"train_batch_size": 4},
    ),
    "prompt": Kind(
        "mine", "jsonl", lines(*({"text": f"the {animal} {verb}", "label": animal} for animal in ("dog", "cat")
                                 for verb in ("runs", "barks", "sleeps"))),
        ('{"text": 3, "label": "dog"}', "text must be text, got 3"), {"text": " "}, {"text": LONG},
        {"type": "classification", "labels": ["cat", "dog"]},
        {"prompt": True, "prompt_template": "{0} it was [MASK] .", "prompt_words": {"dog": "good", "cat": "bad"},
         "prompt_draws": 1, "prompt_evaluation_draws": 2, "max_seq_length": 48},
    ),
}  # fmt: skip


def test_no_kind_is_left_out() -> None:
    assert TASKS.keys() == KINDS.keys()


def write_data(kind: Kind, folder: Path, further: tuple[str, ...] = ()) -> Path:
    """Writes training and development data; returns the training file."""
    dev = lines(*_SCORED) if kind.described == {"type": "embedding"} else kind.rows
    write_lines(folder / kind.task / f"dev.{kind.file}", *dev)
    return write_lines(folder / kind.task / f"train.{kind.file}", *kind.rows, *further)


@pytest.mark.parametrize("name", TASKS)
def test_a_bad_row_is_named_by_file_and_line(name: str, tmp_path: Path) -> None:
    kind = TASKS[name]
    path = write_data(kind, tmp_path, (kind.bad[0],))
    made = make_task(tmp_path, kind.task, kind.described, dropout=0.1, **_plain(kind))
    with pytest.raises(UserError) as raised:
        made.load("train")
    assert str(raised.value).startswith(f"{path}, line {len(kind.rows) + 1}: ") and kind.bad[1] in str(raised.value)


def _plain(kind: Kind) -> dict[str, Any]:
    """The hparams but for a prompt, which needs a vocabulary of its own."""
    return {name: value for name, value in kind.hparams.items() if not name.startswith("prompt")}


class Trained(NamedTuple):
    kind: Kind
    data: Path
    out: Path
    settings: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.out / "finetuning_models" / f"{self.kind.task}_model_1"

    def predictor(self) -> Predictor:
        model = read_model(str(self.folder))
        return Predictor(model, model.tokenizer())


@pytest.fixture(scope="module", params=TASKS)
def trained(request, tmp_path_factory) -> Iterator[Trained]:
    """Two trials of a kind, of a few steps each."""
    kind, name = TASKS[request.param], request.param
    data = tmp_path_factory.mktemp(name)
    write_data(kind, data / "finetuning_data")
    described = {kind.task: kind.described} if kind.described else {}
    settings = {"task_names": [kind.task], "tasks": described, "train_batch_size": 2, **kind.hparams}
    settings |= {"num_train_epochs": 4.0, "num_trials": 2, "save_checkpoints_steps": 1, "iterations_per_loop": 1}
    if name == "prompt":
        write_lines(data / "vocab.txt", *SPECIAL, *WORDS)
        _, model = coco_lm_in(data / "model", data)
        settings |= {"init_checkpoint": str(model), "vocab_file": str(data / "vocab.txt")}
        settings |= {"vocab_size": len(SPECIAL + WORDS), "embedding_size": 16, "model_hparam_overrides": SIZES}
    out = data / "out"
    assert "trial 2/2" in run(data, out, **settings)
    yield Trained(kind, data, out, settings)
    shutil.rmtree(data)


def test_trials_differ_and_are_not_done_again(trained: Trained) -> None:
    before = results(trained.out, trained.kind.task)
    assert len(before["trials"]) == 2 and before["trials"][0]["seed"] != before["trials"][1]["seed"]
    assert run(trained.data, trained.out, **trained.settings).count("done before") == 2
    assert results(trained.out, trained.kind.task) == before


def test_a_killed_trial_ends_as_one_that_was_not(trained: Trained, tmp_path: Path, monkeypatch) -> None:
    settings = trained.settings | {"num_trials": 1}
    save = Checkpoints.save

    def save_and_die(self: Checkpoints, step: int) -> None:
        save(self, step)
        self.writer.wait()
        if step == 2:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(Checkpoints, "save", save_and_die)
        run(trained.data, tmp_path, **settings)
    assert "resuming at step 2 of" in run(trained.data, tmp_path, **settings)
    whole, killed = (results(out, trained.kind.task)["trials"][0]["scores"] for out in (trained.out, tmp_path))
    assert whole == killed


def test_changed_data_are_noticed(trained: Trained) -> None:
    (path,) = (trained.data / "finetuning_data" / trained.kind.task).glob("train.*")
    before = path.read_text()
    try:
        path.write_text(before + before)
        output = run(trained.data, trained.out, expect=2, **trained.settings)
    finally:
        path.write_text(before)
    assert f"was trained with other {trained.kind.task} train" in line_of(output)


def test_prediction_says_what_evaluation_said(trained: Trained) -> None:
    kind, predictor = trained.kind, trained.predictor()
    if kind.described == {"type": "embedding"}:
        rows = [{name: row[name] for name in ("text1", "text2")} for row in _SCORED]
    elif kind.file == "txt":
        rows = [{"words": ["the", "file", "is"]}, {"words": ["no", "error"]}]
    else:
        rows = [json.loads(line) for line in kind.rows]
    written = trained.folder / "predictions" / f"{kind.task}_dev.jsonl"
    evaluated = [json.loads(line) for line in written.read_text().splitlines()]
    if trained.settings.get("prompt"):  # demonstrations of new text are drawn anew
        assert [answer.keys() for answer in predictor(rows)] == [{"label", "probabilities"}] * len(evaluated)
        return
    answers = json.loads(json.dumps(predictor(rows)))
    theirs = [{name: row[name] for name in answer} for row, answer in zip(evaluated, answers, strict=True)]
    assert exports.largest_difference(answers, theirs) < 1e-4
    alone = json.loads(json.dumps(predictor(rows[:1])))
    assert exports.largest_difference(alone, answers[:1]) < 1e-4


def test_empty_and_long_texts(trained: Trained) -> None:
    predictor = trained.predictor()
    (task,) = predictor.tasks
    with pytest.raises(EmptyText, match="here, line 1"):
        parse(task, [trained.kind.empty], "here")
    split = parse(task, [trained.kind.long], "here")
    assert any(split.cut) or len(split.features) > split.choices
    assert max(len(feature.input_ids) for feature in split.features) <= task.config.max_seq_length
    assert len(task.answers(split, predictor.predictions(0, split))) == 1


def test_each_export_gives_the_tasks_answers(trained: Trained, tmp_path: Path) -> None:
    model = read_model(str(trained.folder))
    predictor = trained.predictor()
    if trained.settings.get("prompt"):
        with pytest.raises(UserError, match="which only --format electra keeps"):
            exportable.exportable(model, "main")
        return
    if embeds(model):
        made = exportable.exportable(model, "main")
    else:
        made = exportable.fine_tuned(predictor, check_inputs(model))
    for runtime in (onnx.RUNTIME, litert.RUNTIME, saved_model.RUNTIME):
        written = exportable.write_network(tmp_path, model, made, runtime)
        assert written.difference < 1e-5, runtime.name
        if not embeds(model):
            ours = exports.answers_of(predictor, 0, [trained.kind.long], made)
            run_file, _ = runtime.load(tmp_path / runtime.file)
            theirs = exports.answers_of(predictor, 0, [trained.kind.long], made, run_file)
            assert exports.largest_difference(ours, theirs) < 1e-4, runtime.name
