"""Every kind of task goes every way: bad rows, empty and long texts, trials that are killed, prediction, exports.

A training is traced for seconds, so kinds that can be learned together are: each of RUNS is a run of some kinds.
"""

import functools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from electra_tf2.exports import exportable, litert, onnx, saved_model
from electra_tf2.exports.exportable import Runtime
from electra_tf2.exports.self_check import fixed_inputs
from electra_tf2.finetune.tasks.task import EmptyText
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.predictor import Predictor
from electra_tf2.settings.kinds import KINDS
from electra_tf2.training.checkpoints import Checkpoints
from electra_tf2.util.errors import UserError
from tests.support import exports
from tests.support.finetuning import parse, write_lines
from tests.support.finetuning import task as make_task
from tests.support.finetuning_runs import line_of, results, run
from tests.support.prompting import SIZES, SPECIAL, WORDS, coco_lm_in

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
        "classification", "jsonl", _TEXTS, ('{"text": 3, "label": "no"}', "text must be text, got 3"),
        {"text": " "}, {"text": LONG}, {"type": "classification"},
    ),
    "regression": Kind(
        "regression", "jsonl", _NUMBERS, ('{"text": "a", "label": "x"}', "the label must be a number, got 'x'"),
        {"text": " "}, {"text": LONG}, {"type": "regression"},
    ),
    "spans": Kind(
        "wic", "jsonl", lines(_WIC | {"label": True}, _WIC | {"label": False}),
        (json.dumps(_WIC | {"label": True, "end1": 99}), "characters 4 to 99 are beyond the text of 8 characters"),
        _WIC | {"sentence2": " "}, _WIC | {"sentence2": LONG},
    ),
    "tagging": Kind("chunk", "txt", _TAGS, ("alone", "a word and a tag are needed"), {"text": " "}, {"text": LONG}),
    "qa": Kind(
        "qa", "jsonl", lines(*(_QA | {"id": str(number)} for number in range(4))),
        ('{"question": 3, "context": "a"}', "the field 'question' is missing or of the wrong type"),
        {"question": "?", "context": " "}, {"question": "?", "context": LONG}, {"type": "qa"},
    ),
    "choice": Kind(
        "copa", "jsonl", lines(_COPA, _COPA | {"label": 1, "idx": 1}),
        (json.dumps(_COPA | {"label": 2}), "the label must be 0 or 1, got 2"),
        _COPA | {"choice2": " "}, _COPA | {"premise": LONG},
    ),
    "embedding": Kind(
        "embedding", "jsonl", lines(*_PAIRS), ('{"positive": "a"}', "no text"), {"text": " "}, {"text": LONG},
        {"type": "embedding"},
    ),
    "prompt": Kind(
        "prompt", "jsonl", lines(*({"text": f"the {animal} {verb}", "label": animal} for animal in ("dog", "cat")
                                 for verb in ("runs", "barks", "sleeps"))),
        ('{"text": 3, "label": "dog"}', "text must be text, got 3"), {"text": " "}, {"text": LONG},
        {"type": "classification", "labels": ["cat", "dog"]},
        {"prompt": True, "prompt_template": "{0} it was [MASK] .", "prompt_words": {"dog": "good", "cat": "bad"},
         "prompt_draws": 1, "prompt_evaluation_draws": 2, "max_seq_length": 48},
    ),
}  # fmt: skip


# Kinds that are learned together, and the hparams of a run with a few steps. One of them has two trials.
RUNS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "an input each": (
        ("classification", "regression", "spans", "tagging", "qa"),
        {"train_batch_size": 4, "num_train_epochs": 1.0, "num_trials": 2},
    ),
    "two inputs each": (
        ("choice", "embedding"),
        {"train_batch_size": 4, "num_train_epochs": 3.0, "embedding_projection": 8},
    ),
    "prompt": (("prompt",), {"train_batch_size": 2, "num_train_epochs": 1.0}),
}


def test_no_kind_is_left_out() -> None:
    assert TASKS.keys() == KINDS.keys()
    assert sorted(name for names, _ in RUNS.values() for name in names) == sorted(TASKS)


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


class Learned:
    """A run: trials of some kinds of tasks together, and a copy of the first as it was after two steps.

    data, out: folders of the data and of what was trained. settings: hparams.
    """

    def __init__(self, run_name: str, folder: Path) -> None:
        names, hparams = RUNS[run_name]
        self.kinds = [TASKS[name] for name in names]
        self.data = folder
        self.out = folder / "out"
        described = {kind.task: kind.described for kind in self.kinds if kind.described}
        self.settings: dict[str, Any] = {"task_names": [kind.task for kind in self.kinds], "tasks": described}
        self.settings |= {"num_trials": 1, "save_checkpoints_steps": 1, "iterations_per_loop": 1, **hparams}
        for kind in self.kinds:
            write_data(kind, folder / "finetuning_data")
            self.settings |= kind.hparams
        if run_name == "prompt":
            write_lines(folder / "vocab.txt", *SPECIAL, *WORDS)
            sizes = SIZES | {"num_hidden_layers": 1}
            _, model = coco_lm_in(folder / "model", folder, model_hparam_overrides=sizes)
            self.settings |= {"init_checkpoint": str(model), "vocab_file": str(folder / "vocab.txt")}
            self.settings |= {"vocab_size": len(SPECIAL + WORDS), "embedding_size": 16, "model_hparam_overrides": sizes}

    @property
    def names(self) -> str:
        return ",".join(kind.task for kind in self.kinds)

    def trial(self, out: Path) -> Path:
        return out / "finetuning_models" / f"{self.names}_model_1"

    def train(self) -> None:
        save = Checkpoints.save

        def save_and_copy(checkpoints: Checkpoints, step: int) -> None:
            save(checkpoints, step)
            checkpoints.writer.wait()
            if step == 2 and checkpoints.folder == self.trial(self.out):
                shutil.copytree(checkpoints.folder, self.trial(self.data / "killed"))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Checkpoints, "save", save_and_copy)
            run(self.data, self.out, **self.settings)

    @functools.cached_property
    def predictor(self) -> Predictor:
        model = read_model(str(self.trial(self.out)))
        return Predictor(model, model.tokenizer())

    def number(self, kind: Kind) -> int:
        """The number of a kind's task among those of the run."""
        return self.kinds.index(kind)


@pytest.fixture(scope="module")
def learned_run(tmp_path_factory) -> Iterator[Callable[[str], Learned]]:
    """A function from a name in RUNS to the run, which is trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("runs")

    @functools.cache
    def run_of(name: str) -> Learned:
        learned = Learned(name, folder / name.replace(" ", "_"))
        learned.train()
        return learned

    yield run_of
    shutil.rmtree(folder)


@pytest.fixture(params=RUNS)
def learned(request, learned_run: Callable[[str], Learned]) -> Learned:
    """Each run."""
    return learned_run(request.param)


@pytest.fixture(params=TASKS)
def learned_kind(request, learned_run: Callable[[str], Learned]) -> tuple[Learned, Kind]:
    """Each kind, and its run."""
    (run_name,) = [name for name, (kinds, _) in RUNS.items() if request.param in kinds]
    return learned_run(run_name), TASKS[request.param]


def test_trials_differ_and_are_not_done_again(learned_run: Callable[[str], Learned]) -> None:
    learned = learned_run("an input each")
    before = results(learned.out, learned.names)
    assert len(before["trials"]) == 2 and before["trials"][0]["seed"] != before["trials"][1]["seed"]
    assert before["trials"][0]["scores"] != before["trials"][1]["scores"]
    assert run(learned.data, learned.out, **learned.settings).count("done before") == 2
    assert results(learned.out, learned.names) == before


def test_a_killed_trial_ends_as_one_that_was_not(learned: Learned) -> None:
    """It goes on from what lay on the disk after two steps."""
    out = learned.data / "killed"
    assert "resuming at step 2 of" in run(learned.data, out, **learned.settings | {"num_trials": 1})
    whole, killed = (results(folder, learned.names)["trials"][0] for folder in (learned.out, out))
    assert whole["training"]["steps"] > 2 and whole["scores"].keys() == {kind.task for kind in learned.kinds}
    assert whole["scores"] == killed["scores"]
    assert whole["evaluation"]["examples"].keys() == whole["scores"].keys()


def test_changed_data_are_noticed(learned_kind: tuple[Learned, Kind]) -> None:
    learned, kind = learned_kind
    (path,) = (learned.data / "finetuning_data" / kind.task).glob("train.*")
    before = path.read_text()
    try:
        path.write_text(before + before)
        output = run(learned.data, learned.out, expect=2, **learned.settings)
    finally:
        path.write_text(before)
    assert f"was trained with something else: other train data of {kind.task}" in line_of(output)


def test_prediction_says_what_evaluation_said(learned_kind: tuple[Learned, Kind]) -> None:
    learned, kind = learned_kind
    predictor = learned.predictor
    if kind.described == {"type": "embedding"}:
        rows = [{name: row[name] for name in ("text1", "text2")} for row in _SCORED]
    elif kind.file == "txt":
        rows = [{"words": ["the", "file", "is"]}, {"words": ["no", "error"]}]
    else:
        rows = [json.loads(line) for line in kind.rows]
    written = learned.trial(learned.out) / "predictions" / f"{kind.task}_dev.jsonl"
    evaluated = [json.loads(line) for line in written.read_text().splitlines()]
    if learned.settings.get("prompt"):  # demonstrations of new text are drawn anew
        assert [answer.keys() for answer in predictor(rows)] == [{"label", "probabilities"}] * len(evaluated)
        return
    answers = json.loads(json.dumps(predictor(rows, kind.task)))
    theirs = [{name: row[name] for name in answer} for row, answer in zip(evaluated, answers, strict=True)]
    assert exports.largest_difference(answers, theirs) < 1e-4
    alone = json.loads(json.dumps(predictor(rows[:1], kind.task)))
    assert exports.largest_difference(alone, answers[:1]) < 1e-4


def test_empty_and_long_texts(learned_kind: tuple[Learned, Kind]) -> None:
    learned, kind = learned_kind
    number = learned.number(kind)
    task = learned.predictor.tasks[number]
    with pytest.raises(EmptyText, match="here, line 1"):
        parse(task, [kind.empty], "here")
    split = parse(task, [kind.long], "here")
    assert any(split.cut) or len(split.features) > split.choices
    assert max(len(feature.input_ids) for feature in split.features) <= task.config.max_seq_length
    assert len(task.answers(split, learned.predictor.predictions(number, split))) == 1


def test_a_prompt_is_refused_by_what_exports(learned_run: Callable[[str], Learned]) -> None:
    learned = learned_run("prompt")
    with pytest.raises(UserError, match="which only --format electra keeps"):
        exportable.make_exportable(read_model(str(learned.trial(learned.out))), "main")


def exports_of_runs() -> list[Any]:
    """Runs and runtimes. LiteRT, which takes longest, has few operations for the heads of two inputs to miss."""
    cases = []
    for name in ("an input each", "two inputs each"):
        for runtime in (onnx.RUNTIME, litert.RUNTIME, saved_model.RUNTIME):
            is_slow = runtime is litert.RUNTIME and name == "two inputs each"
            marks = [pytest.mark.slow] if is_slow else []
            cases.append(pytest.param(name, runtime, id=f"{name}, {runtime.name}", marks=marks))
    return cases


@pytest.mark.parametrize(("learned", "runtime"), exports_of_runs(), indirect=["learned"])
def test_each_export_gives_the_tasks_answers(learned: Learned, runtime: Runtime, tmp_path: Path) -> None:
    model = read_model(str(learned.trial(learned.out)))
    made = exportable.make_exportable_heads(learned.predictor, fixed_inputs(model))
    written = exportable.write_network(tmp_path, model, made, runtime)
    assert written.difference < 1e-5
    run_file, _ = runtime.load(tmp_path / runtime.file)
    for number, kind in enumerate(learned.kinds):
        rows = [kind.long, kind.long]  # a batch holds pairs of inputs where one of the tasks compares them
        ours = exports.answers_of(learned.predictor, number, rows, made)
        theirs = exports.answers_of(learned.predictor, number, rows, made, run_file)
        assert exports.largest_difference(ours, theirs) < 1e-4, kind.task
