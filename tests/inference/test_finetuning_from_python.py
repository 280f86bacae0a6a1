"""`electra_tf2.finetune`: what the program learns, from texts, rows, data frames and files, in this process."""

import csv
import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import electra_tf2 as electra
from electra_tf2.config.hparams import all_hparams, dashed
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.inference import finetuning_from_python
from electra_tf2.inference.argument_names import with_arguments
from electra_tf2.inference.examples_in_memory import Argument, ColumnNames, ExampleTable, table_of
from electra_tf2.training.run_folder import GO_ON
from electra_tf2.util.progress import say, warn
from tests.support import golden
from tests.support.finetuning_runs import SIZES
from tests.support.programs import run_program

SETTINGS: dict[str, Any] = {
    "model_hparam_overrides": SIZES["model_hparam_overrides"],
    "embedding_size": SIZES["embedding_size"],
    "vocab_size": SIZES["vocab_size"],
    "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
    "max_seq_length": 16,
    "train_batch_size": 8,
    "num_train_epochs": 2.0,
    "learning_rate": 1e-3,
}
TEXTS = [f"the error was {word}" if number % 2 else f"a day of {word}" for number in range(12) for word in ("in", "on")]
TRAIN = Argument("finetune", "train", "labels")
LABELS = ["bad" if text.startswith("the error") else "good" for text in TEXTS]


def finetune(*examples: Any, **settings: Any) -> electra.Model:
    return electra.finetune(*examples, model=golden.CHECKPOINT, **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[electra.Model, Path]:
    """A model that learned from lists, and the folder of its run."""
    folder = tmp_path_factory.mktemp("learned") / "run"
    return finetune(TEXTS, LABELS, folder=folder), folder


def test_it_learns_what_the_program_learns(tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, LABELS, strict=True)])
    words = ["--train-file", str(table), "--model", str(golden.CHECKPOINT), "--model-dir", str(tmp_path / "program")]
    words += ["--results-dir", str(tmp_path / "results"), "--hparams", json.dumps(SETTINGS | {"seed": 3})]
    done = run_program("run_finetuning.py", *words)
    assert done.returncode == 0, done.stderr
    model = finetune(table, seed=3, folder=tmp_path / "python")
    theirs = electra.load(tmp_path / "program_1")
    assert model.scores == theirs.scores and 0 <= model.scores["reviews"]["dev"]["accuracy"] <= 100
    assert model.predict(TEXTS[:2]) == theirs.predict(TEXTS[:2])


def test_lists_rows_and_data_frames_are_the_same_examples(
    learned: tuple[electra.Model, Path], capsys: pytest.CaptureFixture
) -> None:
    model, folder = learned
    assert {answer.label for answer in model.predict(TEXTS)} <= {"bad", "good"}
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    forms: list[tuple[Any, ...]] = [(rows,), (np.array(TEXTS), np.array(LABELS))]
    for form in forms:
        again = finetune(*form, folder=folder)
        assert "done before" in capsys.readouterr().out
        assert again.scores == model.scores


def test_data_frames(learned: tuple[electra.Model, Path], capsys: pytest.CaptureFixture) -> None:
    pandas = pytest.importorskip("pandas")
    model, folder = learned
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    assert finetune(frame, folder=folder).scores == model.scores
    assert finetune(frame["text"], frame["label"], folder=folder).scores == model.scores
    new = pandas.DataFrame({"text": [TEXTS[0], None, pandas.NA], "id": [1, 2, 3]})
    with pytest.warns(UserWarning, match=r"^texts\[1\] \(and of 1 more\): an empty text"):
        answer, *without_text = model.predict(new)
    assert vars(answer) == vars(model.predict(TEXTS[0]))
    assert [vars(nothing) for nothing in without_text] == [{"error": "an empty text"}] * 2
    with pytest.raises(AttributeError, match="the answer has no 'label', since its row has an empty text"):
        without_text[0].label  # noqa: B018
    assert capsys.readouterr().out.count("done before") == 2


def test_other_examples_in_the_same_folder_are_refused(learned: tuple[electra.Model, Path]) -> None:
    _, folder = learned
    with pytest.raises(electra.UserError, match="something else: other train data of texts"):
        finetune(TEXTS, LABELS[::-1], folder=folder)


def test_what_is_refused_is_refused_before_tensorflow_is_imported(
    learned: tuple[electra.Model, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = learned

    def refuse() -> None:
        raise AssertionError("TensorFlow is imported")

    monkeypatch.setattr(finetuning_from_python, "import_tensorflow", refuse)
    with pytest.raises(electra.UserError, match=r"learning_rate was 0\.001, is 0\.1.*another folder"):
        finetune(TEXTS, LABELS, folder=folder, learning_rate=0.1)
    table = next(folder.glob("data/*/texts.jsonl"))
    words = ["--train-file", str(table), "--model", str(golden.CHECKPOINT), "--model-dir", str(folder / "model")]
    done = run_program("run_finetuning.py", *words, "--hparams", json.dumps(SETTINGS | {"learning_rate": 0.1}))
    (line,) = done.errors
    assert done.returncode == 2 and line.endswith(f"--model-dir {folder / 'model-2'}")
    words = ["--data-dir", str(tmp_path), "--task-names", "rte", "--model", str(golden.CHECKPOINT)]
    done = run_program("run_finetuning.py", *words, "--hparams", json.dumps(SETTINGS))
    (line,) = done.errors
    assert f"task rte: there is no folder {tmp_path}/finetuning_data/rte" in line


def test_pairs_numbers_and_missing_labels_in_a_temporary_folder(capsys: pytest.CaptureFixture) -> None:
    pairs = [(text, "a day") for text in TEXTS]
    numbers = [float(number) for number in range(len(TEXTS) - 1)]
    model = finetune(pairs, [*numbers, float("nan")], dev=pairs[:4], dev_labels=[0, 1, 2, 3], task_type="regression")
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "examples 23 4" in lines  # of 24, one has no label
    (answer,) = model.predict([pairs[0]])
    assert isinstance(answer.label, float)
    folder = Path(model.source.path)
    assert folder.is_dir()
    del model
    gc.collect()
    assert not folder.exists()


def test_rows_of_questions_are_learned_by_their_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(finetuning_from_python, "_trained", lambda config, is_kept: config)
    rows = [{"question": "who?", "context": "Anna lives.", "answer": "Anna"}]
    config: Any = finetune(rows, folder=tmp_path, task_type="qa")
    (described,) = config.tasks.values()
    assert described["type"] == "qa" and "text_columns" not in described
    named: Any = finetune(rows, folder=tmp_path, task_type="qa", text_column=["Frage", "Text"], label_column="Antwort")
    (described,) = named.tasks.values()
    assert (described["text_columns"], described["label_column"]) == (["Frage", "Text"], "Antwort")
    as_flag: Any = finetune(rows, folder=tmp_path, task_type="qa", text_column="Frage,Text", label_column="Antwort")
    assert as_flag.tasks == named.tasks
    text_columns = {"a,b": ["a", "b"], "c,d": ["c,d"]}  # the second is the name of a column
    for names, columns in text_columns.items():
        config = finetune([{"a": "x", "b": "y", "c,d": "z", "label": 1}], folder=tmp_path, text_column=names)
        assert config.tasks["texts"]["text_columns"] == columns
    pairs: Any = finetune([("who?", "Anna lives.")], ["Anna"], folder=tmp_path, task_type="qa")
    (described,) = pairs.tasks.values()
    assert (described["text_columns"], described["label_column"]) == (["text", "second_text"], "label")


@pytest.mark.parametrize(
    ("examples", "settings", "message"),
    [
        ((["a"], ["x", "y"]), {}, "train has 1 text, but labels has 2"),
        ((["a"],), {}, "labels are missing: give one for each text"),
        (([], []), {}, "train holds no examples"),
        (("nowhere.csv",), {}, "there is no file 'nowhere.csv'"),
        (([("a", "b"), "c"], [1, 2]), {}, r"train\[1\] is 'c', but must be a pair of texts"),
        ((["a", 2], [1, 2]), {}, r"train\[1\] is 2, but must be a text"),
        (([{"text": "a", "label": 1}], [1]), {}, "one of which holds the labels: leave labels out"),
        (
            (["a", "b"], ["x", "y"]),
            {"label_column": "text"},
            "a list of texts, without columns: leave label_column out",
        ),
        ((["a", "b"], ["x", "y"]), {"text_column": "t"}, "a list of texts, without columns: leave text_column out"),
        (({"text": ["a"]},), {}, "a list of texts, a data frame"),
        ((["a"], ["x"]), {"learnign_rate": 1e-4}, "no hparam 'learnign_rate'; did you mean 'learning_rate'"),
        ((["a"], ["x"]), {"random_state": 1}, "no hparam 'random_state': here it is seed"),
        ((["a"], ["x"]), {"metric": "f1"}, "here it is a key of the task, tasks="),
        ((["a"], ["x"]), {"learning_rate": -1.0}, "learning_rate must be at least 0"),
        ((["a"], ["x"]), {"train_file": "a.csv"}, "follows from the argument train"),
        ((["a"], ["x"]), {"do_train": False}, "do_train is false"),
        ((["a"], ["x"]), {"dev_labels": ["x"]}, "dev_labels are given without dev"),
        ((["a"], ["x"]), {"dev": ["b"]}, "dev_labels are missing"),
        ((["a", "b"], "xy"), {}, "labels is a list of labels, or a column of a data frame"),
        ((["a"], {"x": 1}), {}, "labels is a list of labels"),
        ((["a"], 5), {}, "labels is a list of labels"),
        (("a" * 300, ["x"]), {}, "there is no file 'aaa"),
        (
            ([f"a {n}" for n in range(20)], [f"b {n}" for n in range(20)]),
            {},
            r"20 different texts for 20 examples.* list\(zip\(a, b\)\), and labels come behind",
        ),
        (([("a", "b")], ["x"]), {"dev": ["a"], "dev_labels": ["x"]}, "train and dev must be alike"),
    ],
)
def test_bad_calls_are_answered_in_one_line(
    tmp_path: Path, examples: tuple[Any, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(electra.UserError, match=message) as error:
        finetune(*examples, folder=tmp_path / "run", **settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_an_unknown_model_is_answered_with_the_closest() -> None:
    with pytest.raises(electra.UserError, match="did you mean 'electra_mini'"):
        electra.finetune(["a", "b"], ["x", "y"], model="electra_minni")


def test_errors_name_arguments_and_no_flags() -> None:
    for _, field in all_hparams(FinetuningConfig):
        flag = dashed(field.name)
        for spelled in (flag, flag.replace("--", "--no-", 1)):
            assert "--" not in with_arguments(f"or {spelled}, which helps")
    message = "give --overwrite, --num-gpus 0 or --text-column; --no-do-eval; electra convert --format onnx; a -- b"
    assert with_arguments(message) == (
        "give overwrite=True, num_gpus=0 or text_column; do_eval=False; electra convert --format onnx; a -- b"
    )
    assert with_arguments("--text-column A,B --label-column C.") == 'text_column="A,B" label_column="C".'
    assert with_arguments("--task-type qa, --overwrite A") == 'task_type="qa", overwrite=True A'


def test_notes_and_warnings_name_arguments_too(capsys: pytest.CaptureFixture) -> None:
    with finetuning_from_python._naming_arguments(Path("nowhere")):
        say("note: --no-joint-prediction trains another")
        warn("see --text-column")
    say("as it is: --overwrite")
    printed = capsys.readouterr()
    assert printed.out == "note: joint_prediction=False trains another\nas it is: --overwrite\n"
    assert printed.err == "WARNING: see text_column\n"


def test_an_array_of_two_columns_holds_pairs() -> None:
    pairs = [("a", "b"), ("c", "d")]
    for array in (np.array(pairs), np.array(pairs, object)):
        table = table_of(TRAIN, pairs, [0, 1], ColumnNames(label="label"), "")
        assert table_of(TRAIN, array, np.array([0, 1]), ColumnNames(label="label"), "") == table
        assert table_of(TRAIN, array, np.array([[0], [1]]), ColumnNames(label="label"), "") == table


def test_frames_of_texts_alone_go_with_labels() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": ["one", "two"], "b": ["three", "four"], "y": [0, 1]}, index=[7, 9])
    expected = table_of(TRAIN, ["one", "two"], [0, 1], ColumnNames(label="label"), "")
    for labels in (frame["y"], frame[["y"]], [0, 1]):
        assert table_of(TRAIN, frame[["a"]], labels, ColumnNames(label="label"), "") == expected
    for columns in (["a", "b"], ["a", "y"], ["a", "b", "y"]):  # one of them may be that of the labels
        with pytest.raises(electra.UserError, match="leave labels out, or give the column of the texts alone"):
            table_of(TRAIN, frame[columns], frame["y"], ColumnNames(label="label"), "")
    with pytest.raises(electra.UserError, match="has the column 'a' twice"):
        table_of(TRAIN, pandas.concat([frame, frame[["a"]]], axis=1), None, ColumnNames(label="label"), "")


def test_values_of_numpy_and_keys_of_a_description_are_hparams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(finetuning_from_python, "_trained", lambda config, is_kept: config)
    hparams: dict[str, Any] = {"seed": np.int64(3), "learning_rate": np.float32(0.5), "class_weights": {"x": 5}}
    hparams["tasks"] = {"texts": {"metric": "macro_f1"}}
    made: Any = finetune(["a", "b"], ["x", "y"], folder=tmp_path / "run", **hparams)
    assert (made.seed, made.learning_rate, made.class_weights) == (3, 0.5, '{"x": 5}')
    assert made.tasks["texts"]["metric"] == "macro_f1" and made.tasks["texts"]["text_columns"] == ["text"]
    numbered = [{"0": "a", "1": "x"}, {"0": "b", "1": "y"}]
    made = finetune(numbered, text_column=0, label_column=1, folder=tmp_path / "other")
    assert made.tasks["texts"]["text_columns"] == ["0"] and made.tasks["texts"]["label_column"] == "1"
    with pytest.raises(electra.UserError, match="whose label_column 'x' in tasks is another than 'y': give it once"):
        finetune(["a"], ["x"], folder=tmp_path / "run", label_column="y", tasks={"texts": {"label_column": "x"}})
    no_model: Any = None
    with pytest.raises(electra.UserError, match="model is a shipped model's name or the folder of a model, not None"):
        electra.finetune(["a"], ["x"], model=no_model)
    (tmp_path / "file").touch()
    with pytest.raises(electra.UserError, match=r"folder .*file is a file"):
        finetune(["a"], ["x"], folder=tmp_path / "file")


def test_a_stopped_call_says_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    stopped = f"SIGINT: saved {tmp_path}/model_1 at step 1,035. {GO_ON}."
    for is_kept, said in (
        (True, f"SIGINT: saved {tmp_path}/model_1 at step 1,035. Call it again, in the same way, to go on."),
        (False, "SIGINT: stopped at step 1,035. Nothing is kept: with folder=... the step is saved, and another call"),
    ):
        with finetuning_from_python._naming_arguments(tmp_path, is_kept):
            say(stopped)
        assert " ".join(capsys.readouterr().out.split()).startswith(said)


def test_lists_of_answers_are_no_tags() -> None:
    pairs = [["Who sang?", "Anna or Ann sang"], ["Who?", "Eva"]]
    answers = [["Anna", "Ann"], ["Eva"]]
    table = table_of(TRAIN, pairs, answers, ColumnNames(label="answer"), "qa")
    assert isinstance(table, ExampleTable) and table.rows[0]["answer"] == ["Anna", "Ann"]
    with pytest.raises(electra.UserError, match='labels are lists: task_type="tagging" learns a tag for each word'):
        table_of(TRAIN, [["Anna", "sang"]], [["B-PER", "O"]], ColumnNames(label="label"), "")


def test_listed_lines_name_examples_and_quoted_texts_stay(tmp_path: Path) -> None:
    file = f"{tmp_path}/data/train-0a/texts.jsonl"
    with pytest.raises(electra.UserError) as error, finetuning_from_python._naming_arguments(tmp_path):
        raise electra.UserError(f"{file}: 2 left out: line 4: 'see line 7' is wrong; line 9: no")
    assert str(error.value) == "train: 2 left out: train[3]: 'see line 7' is wrong; train[8]: no"


def test_lists_of_words_come_with_lists_of_tags(tmp_path: Path) -> None:
    words = [["Anna", "sang"], ["Paris", "is", "open"]]
    tags = [["B-PER", "O"], ["B-LOC", "O", "O"]]
    model = finetune(words * 12, tags * 12, folder=tmp_path, task_type="tagging", dev=words, dev_labels=tags)
    assert model.predict([["Anna", "sang"]])[0].words == ["Anna", "sang"]
    for wrong in ([["B-PER"], ["B-LOC", "O", "O"]], ["x", "y"]):
        with pytest.raises(electra.UserError, match=r"train\[0\] is .* must be a list of words with a list of as many"):
            finetune(words, wrong, folder=tmp_path / "other", task_type="tagging")


@pytest.mark.parametrize(
    ("examples", "settings", "message"),
    [
        ([{"q": "a?", "c": "a b", "answer": "a"}], {"task_type": "qa"}, r"^train\[0\]: no column 'question'"),
        ([{"text": "a", "label": 1}, {"text": "a"}], {}, r"^train\[1\]: no field 'label'"),
        (
            [("a?", "a b")],
            {"task_type": "qa", "labels": ["c"]},
            r"^train: 1 question left out.*: train\[0\]: 'c' is not there",
        ),
    ],
)
def test_errors_in_examples_in_memory_name_the_example(examples, settings, message: str, tmp_path: Path) -> None:
    """Not the file that they became, which nobody has seen."""
    with pytest.raises(electra.UserError, match=message):
        finetune(examples, folder=tmp_path / "a run", **settings)


def test_an_error_of_the_shared_code_names_the_argument(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("title,label\na,x\nb,y\n")
    with pytest.raises(electra.UserError, match="text_column names that of the texts") as error:
        finetune(table, folder=tmp_path / "run")
    assert "--" not in str(error.value)


# `Model.evaluate`.


def test_a_model_is_scored_on_examples_in_any_form(learned: tuple[electra.Model, Path], tmp_path: Path) -> None:
    model, _ = learned
    answers = [answer.label for answer in model.predict(TEXTS)]
    right = np.equal(answers, LABELS)
    scores = model.evaluate(TEXTS, LABELS)
    assert scores["accuracy"] == pytest.approx(100 * right.mean()) and right.sum() > 0 and "macro_f1" in scores
    table = tmp_path / "reviews.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, LABELS, strict=True)])
    rows = [{"n": 1, "text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    forms: list[tuple[Any, ...]] = [(table,), (rows,), (np.array(TEXTS), np.array(LABELS))]
    for form in forms:
        assert model.evaluate(*form) == scores
    assert model.evaluate(TEXTS, answers)["accuracy"] == 100
    assert model.evaluate([*TEXTS, "", "no label"], [*answers, "bad", None])["accuracy"] == 100


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((["a day", "in"], ["good", "fair"]), r"^evaluate: texts\[1\]: unknown label 'fair' \(one of bad, good\)"),
        ((["a day", "in"],), "^evaluate: labels are missing: give one for each text$"),
        ((["a day", "in"], ["good"]), "^evaluate: texts has 2 texts, but labels has 1"),
        (([("a", "day")], ["good"]), r"^evaluate: texts\[0\] is \('a', 'day'\), but the task reads a single text"),
        (
            ([{"txt": "in", "label": "bad"}],),
            r"^evaluate: texts\[0\]: no field 'text'; did you mean 'txt'\? it",
        ),
        (
            ([{"text": "in"}],),
            r"no field 'label'; it has 'text'\. text_column and label_column name yours$",
        ),
        (("no.csv",), "^evaluate: texts: there is no file 'no.csv'"),
        (({"a", "b"}, ["good", "bad"]), "^evaluate: texts is a set, which has no order: give a list"),
    ],
)
def test_examples_that_cannot_be_scored_are_refused(
    learned: tuple[electra.Model, Path], examples: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(electra.UserError, match=message):
        learned[0].evaluate(*examples)
    with pytest.raises(electra.UserError, match=r"^evaluate: there is no task 'x'; the model learned texts"):
        learned[0].evaluate(*examples, task="x")


def test_texts_have_the_columns_of_the_training_data(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pairs = [{"a": text, "b": "in", "y": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    model = finetune(pairs, folder=tmp_path, text_column=["a", "b"], label_column="y", test=pairs[:5], verbose=False)
    assert capsys.readouterr().out == ""
    assert model.scores["texts"]["test"].keys() >= {"accuracy", "macro_f1"}
    scores = model.evaluate(pairs[:5])
    capsys.readouterr()
    assert scores == pytest.approx(model.scores["texts"]["test"], abs=1e-5)
    assert model.evaluate([(row["a"], row["b"]) for row in pairs[:5]], LABELS[:5]) == scores
    with pytest.raises(electra.UserError, match=r"texts\[0\] is .*, but the task reads a pair of texts, a tuple"):
        model.evaluate(TEXTS, LABELS)
    with pytest.raises(electra.UserError, match=r"texts\[1\] is a whole column: pairs .* are list\(zip\(a, b\)\)"):
        model.predict([("a", "b"), np.array(["a", "b"])])


def test_tags_and_answers_are_scored_in_memory(tmp_path: Path) -> None:
    words = [["Anna", "sang"], ["Paris", "is", "open"]]
    tags = [["B-PER", "O"], ["B-LOC", "O", "O"]]
    rows = [{"forms": forms, "kinds": kinds} for forms, kinds in zip(words * 12, tags * 12, strict=True)]
    tagger = finetune(rows, folder=tmp_path / "tags", task_type="tagging", text_column="forms", label_column="kinds")
    assert tagger.evaluate(words, tags) == tagger.evaluate(rows[:2]) and "f1" in tagger.evaluate(words, tags)
    with pytest.warns(UserWarning, match="each word is read as a text of its own"):
        assert len(tagger.predict(["Anna", "sang"])) == 2
    pairs = [("Who sang?", "Anna sang"), ("Where?", "in Paris")] * 12
    reader = finetune(pairs, ["Anna", "Paris"] * 12, folder=tmp_path / "qa", task_type="qa")
    questions = [{"question": a, "context": b, "label": c} for (a, b), c in zip(pairs, ["Anna", "Paris"], strict=False)]
    scores = reader.evaluate(pairs[:2], ["Anna", "Paris"])
    assert scores == reader.evaluate(questions) and "exact_match" in scores
    found = [answer.prediction_text for answer in reader.predict(pairs[:2])]
    assert reader.evaluate(pairs[:2], found)["exact_match"] == 100


def test_names_that_examples_in_memory_do_not_have_are_refused(tmp_path: Path) -> None:
    for hparams, message in (
        ({"tasks": {"reviews": {"metric": "macro_f1"}}}, "tasks describes 'reviews', .* is called 'texts'"),
        ({"test_labels": ["x"]}, "test_labels are given without test"),
        ({"test_file": "t.csv"}, "test_file follows from the argument test"),
    ):
        with pytest.raises(electra.UserError, match=message):
            finetune([{"a": "one", "b": "two", "label": "x"}], folder=tmp_path / "run", **hparams)
    with pytest.raises(
        electra.UserError, match=r"^finetune: folder: cannot write .*file/run/model: a part of its path"
    ):
        (tmp_path / "file").touch()
        finetune(["one"], ["x"], folder=tmp_path / "file" / "run")


def test_answers_that_are_all_alike_and_right_are_no_collapse(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pairs = [("Who sang?", "Anna"), ("Who?", "Anna")] * 12
    finetune(pairs, ["Anna"] * 24, folder=tmp_path, task_type="qa", dev=pairs, dev_labels=["Anna"] * 24)
    said = capsys.readouterr()
    assert "exact_match" in said.out and "collapsed" not in said.err


def test_columns_of_other_names_are_named(
    learned: tuple[electra.Model, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model, _ = learned
    rows = [{"title": text, "a,b": "x", "y": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    table = tmp_path / "t.csv"
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("title", "a,b", "y"), *zip(TEXTS, TEXTS, LABELS, strict=True)])
    scores = model.evaluate(TEXTS, LABELS)
    for examples in (rows, table):
        assert model.evaluate(examples, text_column="title", label_column="Y") == scores
    assert model.predict(rows, text_column="title") == model.predict(TEXTS)
    assert model.predict(rows[0], text_column=["title"]) == model.predict(TEXTS[0])
    for call in (model.predict, model.evaluate):
        with pytest.raises(electra.UserError, match=r"\[0\]: no field 'titles'; did you mean 'title'\? it has 'title"):
            call(rows, text_column="titles")
        with pytest.raises(electra.UserError, match="text_column: task texts reads one text of each row, got 2"):
            call(rows, text_column="title,y")
    with pytest.raises(electra.UserError, match=r"^evaluate: texts have no columns: leave text_column and"):
        model.evaluate(TEXTS, LABELS, text_column="title")
    tagged = [{"forms": ["Anna", "sang"], "kinds": ["B-PER", "O"]}, {"forms": ["Eva"], "kinds": ["B-PER"]}] * 12
    lists = {"dev": [row["forms"] for row in tagged], "dev_labels": [row["kinds"] for row in tagged]}
    columns = {"text_column": "forms", "label_column": "kinds"}
    tagger = finetune(tagged, folder=tmp_path / "tags", task_type="tagging", num_train_epochs=9.0, **lists, **columns)
    assert "too sure" not in capsys.readouterr().out  # the loss is that of whole texts
    with pytest.raises(electra.UserError, match=r"^predict: texts\[0\] has no columns, being 'a': leave text_column"):
        model.predict(["a"], text_column="title")
    new = [{"w": row["forms"], "t": row["kinds"], "forms": ["x"], "tags": ["O"]} for row in tagged]
    assert tagger.evaluate(new, text_column="w", label_column="t") == tagger.evaluate(tagged)
    assert tagger.predict(new[:2], text_column="w") == tagger.predict(lists["dev"][:2])


def test_what_is_lost_of_examples_is_told(
    learned: tuple[electra.Model, Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    model, _ = learned
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than the 16 tokens that are read"):
        model.evaluate(["the " * 30, "a day"], ["good", "bad"])
    with pytest.warns(UserWarning, match="1 token of 4 is unknown to this model"):
        model.evaluate(["a day \u4e2d"], ["good"])
    unlabelled: list[dict[str, Any]] = [{"y": "good"}, {"label": None}, {"label": -1}]
    for number, test in enumerate([[{"text": "a day"} | row] for row in unlabelled]):
        finetune(TEXTS, LABELS, folder=tmp_path / str(number), test=test)
        warned = " ".join(capsys.readouterr().err.split())
        assert "texts: the test data has no labels (column label), so it is not scored" in warned


def test_rows_and_columns_of_pandas(learned: tuple[electra.Model, Path]) -> None:
    pandas = pytest.importorskip("pandas")
    model, _ = learned
    frame = pandas.DataFrame({"id": range(len(TEXTS)), "text": TEXTS, "label": LABELS})
    assert model.predict(frame.iloc[3]) == model.predict(TEXTS[3])
    assert model.predict(frame.rename(columns={"text": "t"}).iloc[3], text_column="t") == model.predict(TEXTS[3])
    named = pandas.Series(TEXTS[:2], index=["first", "second"])
    assert model.predict(named) == model.predict(TEXTS[:2])
    shuffled = frame.sample(frac=1, random_state=0)
    assert model.evaluate(shuffled["text"], shuffled["label"])["accuracy"] == model.evaluate(frame)["accuracy"]
    with pytest.raises(electra.UserError, match="labels have the same index in another order"):
        model.evaluate(frame["text"], shuffled["label"])
    assert "accuracy" in model.evaluate(frame["text"], shuffled["label"].to_numpy())


def test_commands_in_messages_stay(tmp_path: Path) -> None:
    said = "make it by electra pretrain --model-name electra_tiny, or put one there; --model-name names another"
    assert with_arguments(said) == said.replace("; --model-name", "; model")
    names = {"per_device_train_batch_size": "train_batch_size", "eval_dataset": "dev", "max_steps": "num_train_epochs"}
    for name, here in names.items():
        with pytest.raises(electra.UserError, match=f"no hparam '{name}': here it is {here}"):
            finetune(TEXTS, LABELS, folder=tmp_path, **{name: 3})


def test_columns_that_are_named_go_before_those_of_the_training_data(tmp_path: Path) -> None:
    questions = [{"frage": "Who sang?", "satz": "Anna sang", "antwort": "Anna"}] * 24
    named: dict[str, Any] = {"text_column": ["frage", "satz"], "label_column": "antwort"}
    reader = finetune(questions, folder=tmp_path / "qa", task_type="qa", **named)
    both = {"frage": "Who sang?", "satz": "Anna sang", "answers": {"text": ["Anna"], "answer_start": [0]}}
    both |= {"q": "Where?", "c": "in Paris", "a": "Paris"}
    alone = {"q": "Where?", "c": "in Paris", "a": "Paris"}
    columns: dict[str, Any] = {"text_column": "q, c"}
    assert reader.predict(both, **columns) == reader.predict(alone, **columns)
    assert reader.predict(both, **columns).nbest[0]["text"] in "in Paris"
    right = reader.evaluate([both], label_column="a", **columns)
    assert right == reader.evaluate([("Where?", "in Paris")], ["Paris"])
    with pytest.raises(electra.UserError, match="task texts reads two texts of each row, got 1"):
        reader.predict(both, text_column="q")


@pytest.mark.parametrize("train", ["file", "rows"])
def test_pairs_beside_single_texts_are_refused(tmp_path: Path, train: str) -> None:
    rows: Any = [{"a": text, "y": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    if train == "file":
        with open(tmp_path / "t.csv", "w", newline="") as file:
            csv.writer(file).writerows([("a", "y"), *zip(TEXTS, LABELS, strict=True)])
        rows = tmp_path / "t.csv"
    pairs = list(zip(TEXTS, TEXTS, strict=True))
    with pytest.raises(electra.UserError, match=r"^finetune: dev\[0\] is .*, but the task reads a single text"):
        finetune(rows, folder=tmp_path / "run", dev=pairs, dev_labels=LABELS, text_column="a", label_column="y")


def test_examples_without_labels_are_left_out_of_test_data(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    test_labels = [None, "bad", "good", float("nan")]
    model = finetune(TEXTS, LABELS, folder=tmp_path, test=TEXTS[:4], test_labels=test_labels)
    warned = " ".join(capsys.readouterr().err.split())
    assert "the test data: 2 of 4 examples are left out, which have no label; the first: test[0], None" in warned
    assert model.scores["texts"]["test"]["accuracy"] == model.evaluate(TEXTS[1:3], test_labels[1:3])["accuracy"]
    finetune(TEXTS, LABELS, folder=tmp_path / "wrong", test=TEXTS[:2], test_labels=["bad", "fair"])
    warned = " ".join(capsys.readouterr().err.split())
    assert "the test data is not scored: test[1]: unknown label 'fair'" in warned and "has no labels" not in warned


def test_a_stopped_quiet_call_says_what_became_of_it(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        say("step 1")
        say("SIGINT: stopped")
        raise KeyboardInterrupt

    monkeypatch.setattr(finetuning_from_python, "_trained", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(TEXTS, LABELS, verbose=False)
    assert capsys.readouterr().out == "SIGINT: stopped\n"


def test_bytes_and_dates_are_no_texts() -> None:
    for wrong in (b"abc", np.datetime64("2020-01-01")):
        with pytest.raises(electra.UserError, match=r"train\[1\] is .*, but must be a text"):
            table_of(TRAIN, ["a", wrong], [0, 1], ColumnNames(), "")


def test_rows_of_words_are_answered_as_the_sentences_that_they_make(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    sentences = [(["Anna", "sang", "."], ["B-PER", "O", "O"]), (["Eva", "Lind"], ["B-PER", "I-PER"])] * 8
    rows: list[dict[str, Any]] = []
    for number, (words, tags) in enumerate(sentences):
        rows += [{"wort": word, "satz": number, "tag": tag} for word, tag in zip(words, tags, strict=True)]
    columns: dict[str, Any] = {"text_column": "wort,satz", "label_column": "tag", "num_train_epochs": 9.0}
    tagger = finetune(rows, folder=tmp_path / "run", task_type="tagging", **columns)
    answers = tagger.predict(rows)
    whole = tagger.predict([words for words, _ in sentences])
    assert [answer.tag for answer in answers] == [tag for answer in whole for tag in answer.tags]
    probabilities = [answer.probability for answer in answers]
    assert probabilities == pytest.approx([one for answer in whole for one in answer.probabilities], abs=1e-5)
    renamed = [{"w": row["wort"], "s": row["satz"]} for row in rows]
    assert tagger.predict(renamed, text_column=["w", "s"]) == answers
    usual = [{"word": row["wort"], "sentence_id": row["satz"]} for row in rows]
    by_lists = finetune([words for words, _ in sentences], [tags for _, tags in sentences], task_type="tagging")
    assert len(by_lists.predict(usual)) == len(rows) and {*vars(by_lists.predict(usual)[0])} == {"tag", "probability"}
    capsys.readouterr()
    scattered = sorted(rows, key=lambda row: row["tag"])
    tagger.evaluate([row | {"satz": index % 7} for index, row in enumerate(scattered)])
    assert "the words of 7 sentences do not stand together" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(electra.UserError, match=r"^predict: texts: a column sentence_id is needed"):
        by_lists.predict([{"word": "Anna"}, {"word": "sang"}])


def test_a_test_file_that_cannot_be_read_stops_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(electra.UserError, match=r"^test\[0\]: no field 'text'; it has 'x, label'"):
        finetune(TEXTS, LABELS, folder=tmp_path, test=[{"x": "a", "label": "bad"}])
    assert not (tmp_path / "model_1" / "made_of.json").exists()
