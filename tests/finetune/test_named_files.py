"""From one file to a classifier: what flags name, tables as programs write them, what is printed before and after."""

import codecs
import contextlib
import csv
import json

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.files.tables import WordRow
from electra_tf2.finetune.data_report import data_table
from electra_tf2.finetune.mistakes import errors_of, shown_errors
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.head import HeadInput
from electra_tf2.finetune.tasks.tagging_head import TaggingHead
from electra_tf2.finetune.tasks.text import ClassificationHead
from electra_tf2.finetune.trained_folder import trained_config
from electra_tf2.inference.labelled_file import labelled, labelled_lines, labelled_table, rows_of_words
from electra_tf2.inference.labelling import label_file
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support import golden, stored_models
from tests.support.finetuning import write_lines
from tests.support.finetuning_runs import SIZES, WORDS
from tests.support.programs import run_program


def write_reviews(path, rows=240, delimiter=";"):
    """A table of other columns too, as spreadsheets write it: quoted where a cell holds delimiters or line ends."""
    random = np.random.RandomState(1)
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["id", "the text", "mood"])
        for number in range(rows):
            bad = number % 4 == 0
            words = [*random.choice(WORDS, 5), f"a{delimiter} b\nc", *(["error", "error"] if bad else [])]
            writer.writerow([number, " ".join(random.permutation(words)), "bad" if bad else "good"])
    return path


def finetune(folder, *words, expect=0, **hparams):
    sizes = {name: SIZES[name] for name in ("model_hparam_overrides", "embedding_size", "vocab_size")}
    small = {
        "vocab_file": str(golden.CHECKPOINT / "vocab.txt"),
        "data_dir": str(folder),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "num_train_epochs": 4.0,
        "learning_rate": 1e-3,
    }
    done = run_program("run_finetuning.py", "--hparams", json.dumps(sizes | small | hparams), *words)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The folder, and what the one command printed."""
    folder = tmp_path_factory.mktemp("reviews")
    file = write_reviews(folder / "my reviews.csv")
    words = ["--train-file", str(file), "--text-column", "the text", "--label-column", "mood"]
    return folder, finetune(folder, *words, "--model", str(golden.CHECKPOINT), "--class-weights", "balanced")


def test_one_command_makes_a_classifier_of_one_file(learned):
    folder, output = learned
    assert "my_reviews: no dev file: 10 % of train held out (seed 0)" in output
    assert "expected loss  about 0.69 (ln 2) in the first steps" in output
    # The weights of these tests are larger than a trained model's, and so is their first loss.
    assert 0.3 < float(output.split("first loss")[1].split()[0]) < 3
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "my_reviews train dev" in lines and "examples 216 24" in lines
    assert any(line.startswith("label good 16") and line.count("%)") == 2 for line in lines)
    results = json.loads((folder / "models" / "tiny_checkpoint" / "results" / "my_reviews_results.json").read_text())
    (trial,) = results["trials"]
    errors = trial["errors"]["my_reviews dev"]
    assert errors["labels"] == ["bad", "good"] and np.sum(errors["confusion"]) == 24
    right = np.trace(errors["confusion"]) / 24
    assert 100 * right == pytest.approx(trial["scores"]["my_reviews"]["dev"]["accuracy"]) and right > 0.8
    assert "rows: the right label, columns: the predicted one" in output
    *mistakes, wrote, next_command = output.partition("rows: ")[2].splitlines()[1:]
    assert max(map(len, mistakes), default=0) <= 80
    assert wrote.startswith("wrote ") and " predict FILE --output" in next_command


def predict(learned, source, output):
    """Labels a file with the learned model. Returns the finished program."""
    folder, _ = learned
    model = folder / "models" / "tiny_checkpoint" / "finetuning_models" / "my_reviews_model_1"
    words = [f"--model-dir={model}", f"--predict={source}", f"--predict-output={output}"]
    return run_program("run_finetuning.py", *words)


@pytest.mark.parametrize(("read", "output", "written"), [(",", "out.tsv", "\t"), (";", "out.csv", ";")])
def test_predictions_as_a_table(learned, tmp_path, read, output, written):
    """A csv is written with the delimiter of the csv that was read, whatever that of the training data was."""
    new = write_reviews(tmp_path / "new.csv", rows=9, delimiter=read)
    (tmp_path / output).touch()
    done = predict(learned, new, tmp_path / output)
    assert done.returncode == 0 and f"{output} was there and is replaced" in done.stderr, done.stderr
    with open(tmp_path / output, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file, delimiter=written))
    assert (tmp_path / output).read_bytes().startswith(codecs.BOM_UTF8)  # by which Excel knows UTF-8, as in the source
    assert [row["id"] for row in rows] == [str(number) for number in range(9)] and "\nc" in rows[0]["the text"]
    for row in rows:
        shares = {label: float(row[f"probability_{label}"]) for label in ("bad", "good")}
        assert sum(shares.values()) == pytest.approx(1) and row["label"] == max(shares, key=shares.__getitem__)


def test_columns_of_a_file_to_be_labelled_may_have_other_names(learned, tmp_path):
    folder, _ = learned
    model = folder / "models" / "tiny_checkpoint" / "finetuning_models" / "my_reviews_model_1"
    (tmp_path / "new.csv").write_text("Kommentar,n\nthe file is open,1\n")
    words = ["run_finetuning.py", "--predict", f"{tmp_path}/new.csv", "--predict-output=-", f"--model-dir={model}"]
    done = run_program(*words, "--text-column", "Kommentar")
    assert done.returncode == 0, done.stderr
    [row] = map(json.loads, done.stdout.splitlines())
    assert row["Kommentar"] == "the file is open" and row["label"] in ("good", "bad"), done.stderr
    for flags, message in (
        (["--text-column", "Text"], "new.csv has no column 'Text': its first line is ['Kommentar', 'n']"),
        (["--text-column", "Kommentar,n"], "--text-column: task my_reviews reads one text of each row, got 2"),
        (["--label-column", "n"], "leave --label-column out"),
    ):
        [error] = run_program(*words, *flags).errors
        assert message in error


def test_one_command_learns_questions_whose_columns_have_names_of_their_own(tmp_path):
    rows = []
    for number in range(30):
        context = f"The file of {WORDS[number % len(WORDS)]} is open. It is number {number}."
        rows.append(["Which number?", context, "" if number % 3 else str(number)])
    for name, part in (("faq.csv", rows[3:]), ("dev.csv", rows[:3])):
        with open(tmp_path / name, "w", newline="") as file:
            csv.writer(file).writerows([["Frage", "Abschnitt", "Antwort"], *part])
    words = ["--train-file", str(tmp_path / "faq.csv"), "--task-type=qa", "--label-column=Antwort"]
    words += ["--dev-file", str(tmp_path / "dev.csv")]
    words += ["--text-column=Frage,Abschnitt", "--qa-na-threshold=-1000"]  # above which no answer is given: always
    output = finetune(tmp_path, *words, model=str(golden.CHECKPOINT), num_train_epochs=1.0, train_batch_size=4)
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "questions 27 3" in lines and "no answer 18 (67 %) 2 (67 %)" in lines
    assert "7 steps: 1 epoch of 27 questions in batches of 4" in lines
    assert "f1 of always no answer" in output and "to answer other questions: " in output
    assert "collapsed: no answer to any of 3 questions" in output and "7 steps are few for answers" in output
    folder = tmp_path / "models" / "tiny_checkpoint"
    (trial,) = json.loads((folder / "results" / "faq_results.json").read_text())["trials"]
    assert trial["evaluation"]["examples"] == {"faq": {"dev": 3}}
    model = folder / "finetuning_models" / "faq_model_1"
    (tmp_path / "new.csv").write_text(f"Abschnitt,Frage\n{rows[0][1]},Which number?\n")
    done = run_program(
        "run_finetuning.py", f"--model-dir={model}", f"--predict={tmp_path}/new.csv", "--predict-output=-"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["Frage"] == "Which number?" and answer["probability"] is None and "question" not in answer


def test_tagged_words_as_lines():
    answers: list[dict] = [
        {"words": ["in", "Rome"], "tags": ["O", "B-LOC"]},
        {"error": "an empty text"},
        {"words": ["no"], "tags": ["O"]},
    ]
    rows = [({"text": "whatever", "id": "7"}, answer) for answer in answers]
    assert labelled(rows, "conll") == "in O\nRome B-LOC\n\nno O\n\n"
    rows = [({}, {"words": ["New York", "x"], "tags": ["B-LOC", "O"]})]
    assert labelled(rows, "conll") == "New York\tB-LOC\nx\tO\n\n"


def test_lines_of_tagged_words_are_refused_for_other_tasks(learned, tmp_path):
    new = write_reviews(tmp_path / "new.csv", rows=2, delimiter=",")
    done = predict(learned, new, tmp_path / "out.conll")
    assert done.returncode == 2 and "my_reviews is no tagging task: give a .csv" in done.stderr
    assert not (tmp_path / "out.conll").exists()


def test_answers_to_a_file_with_labels_are_scored(learned, tmp_path):
    """As at the end of training, whatever else the file holds; a file without labels has no scores."""
    new = write_reviews(tmp_path / "new.csv", rows=30, delimiter=",")
    done = predict(learned, new, tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    right = sum(row["label"] == row["mood"] for row in rows)
    line, baseline = (line for line in done.stdout.splitlines() if line.startswith("accuracy"))
    assert baseline.startswith("accuracy of the commonest label")
    assert float(line.split()[1]) == pytest.approx(100 * right / 30, abs=0.1)
    assert "my_reviews  precision  recall" in done.stdout
    lines = [row["the text"].replace("\n", " ") for row in rows]
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    assert "accuracy" not in predict(learned, tmp_path / "lines.txt", tmp_path / "out.csv").stdout
    write_lines(tmp_path / "empty.csv", "the text,mood", "the file,", "a list,")
    done = predict(learned, tmp_path / "empty.csv", tmp_path / "out.csv")
    assert "accuracy" not in done.stdout and "not scored" not in done.stderr


def test_lists_in_a_table_are_one_cell():
    text = labelled_table([({"words": ["a", "b"], "n": 1}, {}), ({"n": 2}, {"error": "x,y"})], ",")
    assert list(csv.reader(text.splitlines())) == [["words", "n", "error"], ["a b", "1", ""], ["", "2", "x,y"]]
    answers = [({"question": "who?"}, {"prediction_text": "Anna", "nbest": [{"text": "Anna"}, {"text": "she"}]})]
    assert labelled_table(answers, ",") == "question,prediction_text\nwho?,Anna\n"
    assert "she" in labelled_lines(answers)
    text = labelled_table([({"n": 1}, {"words": ["a b", "c"], "tags": ["O", "O"]})], ",")
    assert list(csv.DictReader(text.splitlines())) == [{"n": "1", "words": '["a b", "c"]', "tags": "O O"}]


@pytest.mark.parametrize("write", [lambda rows: labelled_table(rows, ","), labelled_lines], ids=["table", "lines"])
def test_no_column_is_lost_however_often_a_file_is_labelled(write):
    rows = [{"text": "a", "label": "gold", "probability_x": "0.1"}, {"text": "b", "label": "gold", "given_label": "?"}]
    for number in range(3):
        answer = {"label": f"x{number}", "probabilities": {"x": number}}
        text = write([(row, answer) for row in rows])
        lines = text.splitlines()
        rows = [json.loads(line) for line in lines] if write is labelled_lines else list(csv.DictReader(lines))
    values = [str(value) for row in rows for value in row.values()]
    assert {"x0", "x1", "x2", "gold", "0.1", "?", "a", "b"} <= {*values}
    assert [row["label"] for row in rows] == ["x2", "x2"]


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (["sentence_id;word;page", "1;the;7", ";man;7", "2;went;8"], "sentence_id;word;page;tag;probability"),
        (["page;word;tag", "7;the;B-NP", "7;man;I-NP", "", "8;went;O"], "page;word;given_tag;tag;probability"),
        (["page;word;x", "7;the;", "7;;a note", ";;", "8;went;O"], "page;word;x;tag;probability"),
        (["sentence_id;word;x", "1;the;", "2;;a note", "3;went;O", "4;;end"], "sentence_id;word;x;tag;probability"),
    ],
)
def test_a_table_of_words_comes_back_with_a_tag_in_each_row(tmp_path, lines, header):
    folder = tmp_path / "chunk"
    labels = {"labels": ["B-NP", "E-NP", "I-NP", "O", "S-NP"]}
    stored_models.write_folder(folder, stored_models.fine_tuned("chunk", stored_models.dense(5), labels))
    new = write_lines(tmp_path / "new.csv", *lines)
    config = trained_config(folder, {}, elsewhere=True)
    text = label_file(config, folder, "chunk", str(new), "csv")
    written = text.splitlines()
    assert written[0] == header
    assert [line.split(";")[1] for line in written[1:]] == [line.partition(";")[2].split(";")[0] for line in lines[1:]]
    [first, second] = map(json.loads, label_file(config, folder, "chunk", str(new), "jsonl").splitlines())
    answers = [line.split(";")[-2:] for line in written[1:] if line.split(";")[1]]
    tags = [*first["tags"], *second["tags"]]
    probabilities = [*first["probabilities"], *second["probabilities"]]
    assert answers == [[tag, str(value)] for tag, value in zip(tags, probabilities, strict=True)]
    again = write_lines(tmp_path / "again.csv", *written)
    assert len(label_file(config, folder, "chunk", str(again), "jsonl").splitlines()) == 2


@pytest.mark.parametrize("words", [2, None, "Anna"])
def test_words_of_a_row_that_are_something_else_stand_beside_those_that_were_read(words):
    answer = {"words": ["Anna", "sang"], "tags": ["O", "O"]}
    (line,) = labelled_lines([({"text": "Anna sang", "words": words}, answer)]).splitlines()
    assert json.loads(line) == {"text": "Anna sang", "given_words": words} | answer


def test_a_table_holds_all_that_was_read(tmp_path):
    rows = [{"meta": {"id": 7}, "meta_id": 9, "text": "a\rb"}, {"meta": {}, "meta_id": 8, "text": "c\nd"}]
    path = tmp_path / "labelled.csv"
    path.write_text(labelled_table([(row, {"label": "x"}) for row in rows], ","), newline="")
    with open(path, newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {"meta": '{"id": 7}', "meta_id": "9", "text": "a\rb", "label": "x"}
    assert second == {"meta": "{}", "meta_id": "8", "text": "c\nd", "label": "x"}


def test_a_row_without_a_word_begins_a_sentence_of_its_own_file():
    first = [WordRow({"word": "Ann", "note": ""}, has_word=True)]
    second = [WordRow({"word": "", "note": "a comment"}, has_word=False), WordRow({"word": "Bo"}, has_word=True)]
    answers = [{"tags": ["O"], "probabilities": [1.0]}] * 2
    rows = [row for row, _ in rows_of_words([first, second], answers, are_numbered=False)]
    assert rows == [first[0].values, {}, second[0].values, second[1].values]


def test_what_a_row_and_its_answer_both_have_stays_as_it_was_read():
    """Answers to questions have the row's id as a text."""
    row = {"id": 7, "words": ["a", "b"]}
    (line,) = labelled_lines([(row, {"id": "7", "words": ("a", "b"), "tags": ["O", "O"]})]).splitlines()
    assert json.loads(line) == row | {"tags": ["O", "O"]}


def test_early_stopping_keeps_the_best_and_is_done(tmp_path):
    file = write_reviews(tmp_path / "own.csv", rows=80)
    words = ["--train-file", str(file), "--text-column=the text", "--label-column=mood", "--early-stopping=2"]
    settings = {"num_train_epochs": 30.0, "learning_rate": 0.0, "model": str(golden.CHECKPOINT)}
    output = finetune(tmp_path, *words, **settings)  # which learns nothing: the first evaluation stays the best
    assert "early stopping at step 27: no evaluation since step 9 was better" in output
    folder = tmp_path / "models" / "tiny_checkpoint"
    scores = json.loads((folder / "finetuning_models" / "own_model_1" / "scores.json").read_text())
    assert scores["training"]["steps"] == 27 and scores["training"]["best_step"] == 9
    assert "done before" in finetune(tmp_path, *words, **settings)


def config(tmp_path, **given):
    return configuration({"data_dir": str(tmp_path)} | given)


def test_what_flags_name_is_a_task_and_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = config(tmp_path, model="electra_mini", train_file="a b.csv", test_file="t.csv", text_column=["x", "y"])
    files = {"train": f"{tmp_path}/a b.csv", "test": f"{tmp_path}/t.csv"}
    described = {"type": "classification", "text_columns": ["x", "y"], "label_column": "label", "files": files}
    assert (made.model_name, made.task_names, made.tasks) == ("electra_mini", ["a_b"], {"a_b": described})
    assert made.init_checkpoint.endswith("pretrained/electra_mini")
    assert configuration(vars(made)) == made
    made = config(tmp_path, train_file="tags.txt", task_type="tagging", dev_file="more.txt", model_name="electra_mini")
    assert made.kind_of("tags") == "tagging"
    made = config(
        tmp_path, train_file="a.json", task_type="tagging", label_column="ner_tags", model_name="electra_mini"
    )
    assert made.tasks["a"]["label_column"] == "ner_tags"
    made = config(tmp_path, train_file="train.csv", task_names=["reviews"], model_name="electra_mini")
    assert list(made.tasks) == made.task_names == ["reviews"] and made.model_dir.endswith("/reviews_model")
    assert configuration(vars(made)) == made
    for wrong, message in (
        (
            {"train_file": "x.json", "task_type": "embedding", "label_column": "x"},
            "label_column: the columns of a file of task_type embedding",
        ),
        (
            {"train_file": "x.json", "task_type": "qa", "text_column": ["x"]},
            "text_columns must be two, of questions and of contexts",
        ),
        (
            {"train_file": "x.csv", "task_type": "tagging", "text_column": ["x", "y", "z"]},
            "text_columns must be that of the words or texts, and that of the sentences' numbers",
        ),
        ({"dev_file": "x.csv"}, "dev_file: what belongs to a train_file, which is not given"),
        ({"train_file": "x.csv", "task_names": ["cola"]}, "x.csv is one task of your own: leave task_names cola out"),
        ({"train_file": "x.csv", "task_names": ["x", "y"]}, "leave task_names x,y out"),
        (
            {"train_file": "x.csv", "task_type": "tagging", "tasks": {"x": {"type": "qa"}}},
            "x.csv is task x, whose type 'qa' in tasks is another than 'tagging': give it once",
        ),
        ({"model": "electra_mini", "model_name": "electra_evening"}, "model electra_mini and model_name"),
        ({"train_file": "x.csv", "double_unordered": True}, "double_unordered is for pairs of texts"),
    ):
        with pytest.raises(UserError, match=message):
            config(tmp_path, **wrong)


def test_a_file_that_is_not_there_is_named_by_its_flag():
    done = run_program("run_finetuning.py", "--train-file", "nosuch.csv", "--model", "electra_mini")
    assert done.errors == ["error: --train-file: there is no file nosuch.csv"] and "layers of" not in done.stdout


_TAGS = "tagged words: --task-type tagging"
_QUESTIONS = "questions about documents: --task-type qa"
_MARK = {"start": 0, "end": 4, "labels": ["PER"]}  # as Label Studio has it


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.txt", "Peter B-PER\nlives O\n\nBerlin B-LOC\n", _TAGS),
        ("a.tsv", "Peter\tB-PER\nlives\tO\n", _TAGS),
        ("a.tsv", "Peter\tNNP\nlives\tVBZ\n\nHere\tRB\n.\t.\n", _TAGS),
        ("a.tsv", "word\ttag\nPeter\tNNP\nlives\tVBZ\n\nHere\tRB\n.\t.\n", _TAGS),
        ("a.txt", "Peter NNP B-PER\nlives VBZ O\n\nHere RB O\n", _TAGS),
        ("a.txt", "Peter NNP\nlives VBZ\n\nHere RB\n", _TAGS),
        ("a.csv", "sentence_id,word,pos\n1,Peter,NNP\n1,lives,VBZ\n", _TAGS),
        ("a.jsonl", '{"tokens": ["Peter", "lives"], "pos_tags": ["NNP", "VBZ"]}\n', _TAGS),
        ("a.jsonl", '{"text": "He.", "label": []}\n{"text": "Anna lives.", "label": [[0, 4, "PER"]]}\n', _TAGS),
        ("a.jsonl", '{"text": "Anna lives.", "spans": [{"start": 0, "end": 4, "label": "PER"}]}\n', _TAGS),
        ("a.json", json.dumps([{"data": {"text": "Anna."}, "annotations": [{"result": [{"value": _MARK}]}]}]), _TAGS),
        ("a.json", json.dumps([{"text": "Anna lives.", "label": [_MARK]}]), _TAGS),
        (
            "a.json",
            json.dumps({"version": "1", "data": [{"paragraphs": [{"context": "a b", "qas": []}]}]}),
            _QUESTIONS,
        ),
        ("a.csv", "question,context,answer\nwho?,Anna lives.,Anna\n", _QUESTIONS),
        ("a.csv", "Question;Passage;Answer\nwho?;Anna lives.;Anna\n", _QUESTIONS),
        ("a.jsonl", '{"question": "who?", "context": "Anna lives.", "answers": ["Anna"]}\n', _QUESTIONS),
    ],
)
def test_a_file_for_another_kind_of_task_is_told(tmp_path, name, content, remedy):
    (tmp_path / name).write_text(content)
    for kind in ("classification", "regression", "tagging", "qa"):
        named = {"train_file": str(tmp_path / name), "task_type": kind}
        task = make_tasks(config(tmp_path, model_name="electra_mini", **named), support.tokenizer())[0]
        if remedy.endswith(kind):
            with contextlib.suppress(UserError):  # as of too few examples to hold some out
                task.load("train")
            continue
        with pytest.raises(UserError, match=f"{name} looks like a file of {remedy}. As a "):
            task.load("train")
    for other in ("a,b\nc,d\n", "a\tb\nc\td\n\n", "some words\tlabel\n\nmore words\tlabel\n"):
        (tmp_path / name).write_text(other)
        named = {"train_file": str(tmp_path / name), "task_type": "classification"}
        task = make_tasks(config(tmp_path, model_name="electra_mini", **named), support.tokenizer())[0]
        with pytest.raises(UserError) as caught:
            task.load("train")
        assert "looks like" not in str(caught.value)


def test_a_folder_of_the_files_name_is_another_tasks(tmp_path):
    write_reviews(tmp_path / "reviews.csv", rows=20, delimiter=",")
    for split in ("dev", "test"):
        write_lines(tmp_path / "finetuning_data" / "reviews" / f"{split}.jsonl", json.dumps({"other": "columns"}))
    named = {"train_file": str(tmp_path / "reviews.csv"), "text_column": ["the text"], "label_column": "mood"}
    task = make_tasks(config(tmp_path, model_name="electra_mini", **named), support.tokenizer())[0]
    assert not task.files.exists("test") and task.files.holds_out
    assert task.files_of("dev") == [tmp_path / "reviews.csv"]


@pytest.mark.parametrize(
    ("suffix", "options", "lines"),
    [
        ("csv", {}, ["text,label", '"a, ""b""",x', "c,y"]),
        ("csv", {}, ["text;label", "a, b;x", "c;y"]),
        ("csv", {}, ["text|label", "a; b|x", "c, d; e|y"]),
        ("csv", {}, ["text\tlabel", '"a\tb"\tx', "c\ty"]),
        ("csv", {}, ["text;label", "a;x", "c;d;y", *(f"{n};y" for n in range(1000))]),  # a bad line
        ("csv", {"delimiter": "^"}, ["text^label", "a, b^x", "c^y"]),
        ("csv", {"quoted": False}, ["text,label", '"a,x', 'c"",y']),
        ("tsv", {"quoted": True}, ["text\tlabel", '"a\tb"\tx', "c\ty"]),
        ("tsv", {}, ["text\tlabel", '"a\tx', "c\ty"]),
    ],
)
def test_delimiters_and_quotes(tmp_path, suffix, options, lines):
    path = write_lines(tmp_path / f"own.{suffix}", *lines)
    described = {"type": "classification", "files": {"train": str(path)}, "held_out": 0} | options
    settings = support.config("own", tasks={"own": described}, data_dir=str(tmp_path))
    examples = make_tasks(settings, support.tokenizer())[0].load("train").examples
    assert [one.label for one in examples[:2]] == ["x", "y"]
    assert examples[0].texts[0][:1] in 'a"' and all(one.texts[0] for one in examples)
    with pytest.raises(UserError, match="delimiter is one character"):
        support.config("own", tasks={"own": described | {"delimiter": "::"}}, data_dir=str(tmp_path))


def test_declared_labels_are_spelled_as_those_of_files(tmp_path):
    for declared, cells in ((["1.0", "2.0"], ["1.0", "2"]), ([True, False], ["TRUE", "false"])):
        path = write_lines(tmp_path / "own.csv", "text,label", *(f"text {cell},{cell}" for cell in cells))
        described = {"type": "classification", "files": {"train": str(path)}, "held_out": 0, "labels": declared}
        task = make_tasks(support.config("own", tasks={"own": described}), support.tokenizer())[0]
        assert len({example.label for example in task.load("train").examples}) == 2


def test_texts_with_different_labels_are_told(tmp_path, capsys):
    rows = [{"text": f"text {number % 20}", "label": "ab"[number % 2]} for number in range(40)]
    task_of(tmp_path, rows).load("train")
    assert "different labels" not in capsys.readouterr().err
    rows += [{"text": "text 3", "label": "a"}, {"text": "text 3", "label": "b"}, {"text": "text 4", "label": "b"}]
    task_of(tmp_path, rows).load("train")
    warned = " ".join(capsys.readouterr().err.split())
    assert "own: 2 texts with different labels in several rows; the first:" in warned and "line 41" in warned


def test_pairs_of_a_file_are_learned_in_both_orders_if_asked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "own.csv", "a,b,label", *(f"first {n},second {n},{n % 2}" for n in range(20)))
    for asked, size in (({}, 18), ({"double_unordered": True}, 36)):
        made = config(tmp_path, model="electra_mini", train_file="own.csv", text_column=["a", "b"], **asked)
        assert len(make_tasks(made, support.tokenizer())[0].load("train").features) == size
        assert ("each of 18 pairs is learned in both orders" in capsys.readouterr().out) == (size == 36)
        assert configuration(vars(made)) == made
    made = config(tmp_path, model="electra_mini", train_file="own.csv", text_column=["A", "b"], label_column="LABEL")
    assert len(make_tasks(made, support.tokenizer())[0].load("train").examples) == 18
    made = config(tmp_path, model="electra_mini", train_file="own.csv")
    with pytest.raises(UserError, match=r"own\.csv has no column 'text': its first line is \['a', 'b', 'label'\]"):
        make_tasks(made, support.tokenizer())[0].load("train")
    made = config(tmp_path, model="electra_mini", train_file="own.csv", label_column="y")
    with pytest.raises(UserError, match=r"own\.csv has no column 'text' and no column 'y': its first line is"):
        make_tasks(made, support.tokenizer())[0].load("train")
    for columns, label in ((["a", "a"], "label"), (["a", "b"], "b")):
        with pytest.raises(UserError, match=r"columns of texts .* and of labels .* must be different"):
            config(tmp_path, model="electra_mini", train_file="own.csv", text_column=columns, label_column=label)


def task_of(tmp_path, rows, **overrides):
    path = write_lines(tmp_path / "own.jsonl", *map(json.dumps, rows))
    described = {"type": "classification", "files": {"train": str(path), "dev": str(path)}}
    return make_tasks(support.config("own", tasks={"own": described}, **overrides), support.tokenizer())[0]


def test_class_weights(tmp_path):
    rows = [{"text": "the file", "label": label} for label in "aaabbc"]
    weights = {"balanced": [2 / 3, 1, 2], '{"c": 5, "a": 0}': [0, 1, 5], '{" c ": 5}': [1, 1, 5], "none": None}
    for given, expected in weights.items():
        task = task_of(tmp_path, rows, class_weights=given)
        task.load("train")
        assert task.class_weights() == (expected and pytest.approx(expected))
    for given, message in (
        ("heavy", "must be none, balanced or"),
        ('{"d": 1}', "unknown label 'd'"),
        ('{"a": -1}', "a"),
        ('{"a": 1e999}', "a"),
    ):
        task = task_of(tmp_path, rows, class_weights=given)
        task.load("train")
        with pytest.raises(UserError, match=f"class_weights.*{message}"):
            task.class_weights()
    with pytest.raises(UserError, match="class_weights are for classification"):
        support.config("sts", class_weights="balanced")
    with pytest.raises(UserError, match="write_distill_outputs: vectors of texts have no labels"):
        support.config("sentence_embedding", write_distill_outputs=True)


def test_class_weights_weigh_the_loss_in_training_alone():
    head = ClassificationHead("task_specific/own", 4, 3, support.config("cola"), 0, [0.0, 1.0, 5.0])
    mask = tf.ones([3, 2], tf.int32)
    inputs = HeadInput(tf.random.normal([3, 2, 4]), mask, mask, {"label_ids": tf.constant([0, 1, 2])})
    plain, weighted = (head(inputs, None, training=training).losses.numpy() for training in (False, True))
    np.testing.assert_allclose(weighted, plain * [0, 1, 5], rtol=1e-6)


def test_the_tables_of_many_labels_fit_80_columns(tmp_path):
    labels = [f"label with a long name, number {n}" for n in range(30)]
    rows = [{"text": f"the file {n}", "label": labels[n % 30]} for n in range(60)]
    task = task_of(tmp_path, rows)
    split = task.load("train")
    shown = data_table(task, {"train": split, "dev": split})
    assert "22 other labels" in shown and "44 (73 %)" in shown
    assert sum(" (3 %)" in line for line in shown.splitlines()) == 8  # though they begin alike
    logits = np.eye(30, dtype=np.float32)
    predictions = [{"logits": logits[(n + n % 2) % 30], "predictions": np.array((n + n % 2) % 30)} for n in range(60)]
    errors = errors_of(task, split, task.answers(split, predictions))
    listed = shown_errors("own dev", errors)
    assert len(errors["mistakes"]) == 5 and " taken for " in listed
    assert max(len(line) for line in (shown + listed).splitlines() if " taken for " not in line) <= 80


def test_losses_of_tagging_are_the_same_quantity_in_training_and_evaluation():
    """The sum over a sentence's words that have a label."""
    head = TaggingHead("task_specific/tags", 4, 3, support.config("cola"), 0)
    labels = {name: tf.constant([[0, 1, 2, 0]]) for name in ("labels", "labeled_positions")}
    labels["labels_mask"] = tf.constant([[1.0, 1.0, 0.0, 0.0]])
    mask = tf.ones([1, 4], tf.int32)
    inputs = HeadInput(tf.random.stateless_normal([1, 4, 4], [0, 0]), mask, mask, labels)
    trained, evaluated = (head(inputs, None, training=training).losses.numpy() for training in (True, False))
    logits = head.logits(inputs, None).numpy()[0]
    expected = sum(np.log(np.exp(logits[word]).sum()) - logits[word, word] for word in (0, 1))
    np.testing.assert_allclose([trained[0], evaluated[0]], expected, rtol=1e-5)
