"""The script from its command line: what it prints and writes, and how it refuses."""

import json
import shutil

import pytest
from tensorflow.python.summary.summary_iterator import summary_iterator

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exports import cards
from electra_tf2.formats.readers import read_model
from electra_tf2.inference.finetuning_run import problems_of_start
from electra_tf2.inference.model_config import with_config
from electra_tf2.model import kernels
from tests.support import golden
from tests.support import training as support
from tests.support.programs import run_program


@pytest.fixture
def run():
    """A function from hparams and flags to (exit code, stdout, stderr); formulas run themselves, none is compiled."""
    with kernels.off():
        yield lambda settings, *words: run_program("run_pretraining.py", "--hparams", json.dumps(settings), *words)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    support.write_records(folder / "pretrain_tfrecords")
    support.write_records(folder / "pretrain_tfrecords", "dev_data", examples=21, shards=1)
    return folder


def settings_in(data_dir, model):
    return support.hparams(data_dir, model_dir=str(model), num_train_steps=4)


@pytest.fixture
def settings(data_dir, tmp_path):
    return settings_in(data_dir, tmp_path / "model")


@pytest.fixture(scope="module")
def finished(data_dir, tmp_path_factory):
    """The folder of a run of `settings` that was evaluated, and what it said."""
    folder = tmp_path_factory.mktemp("finished") / "model"
    hparams = json.dumps(settings_in(data_dir, folder))
    with kernels.off():
        code, out, err = run_program("run_pretraining.py", "--hparams", hparams, "--do-eval")
    assert code == 0, err
    return folder, out


@pytest.fixture
def trained(finished, settings):
    """A copy of that folder, as if `settings` had been run."""
    shutil.copytree(finished[0], settings["model_dir"])


def test_a_run_is_summed_up_saved_evaluated_and_not_repeated(run, trained, settings, tmp_path, finished):
    out = finished[1]
    for words in ("parameters", "600 WordPieces", "FLOP in all", "60 records", "seen 0.533 times"):
        assert words in out
    assert "hparams        other than the defaults: " in out and "embedding_size 16" in out
    assert '"embedding_size"' not in out and "vocab_file" not in out and "/job:" not in out
    assert "devices        1 x CPU, float32, XLA o" in out and "micro-batch" not in out
    shown = out.partition("evaluation at step 4: ")[2].partition("\n\n")[0]
    order = ["loss ", "masked_lm_loss ", "disc_loss ", "disc_auc ", "disc_recall "]
    assert sorted(order, key=shown.index) == order and "plateau" not in out and "cosine" not in out
    progress, _, commands = out.partition("tracing")[2].partition("to fine-tune it: ")
    *lines, wrote = progress.splitlines()
    assert max(map(len, lines)) <= 80 and wrote.startswith("wrote ") and wrote.endswith("unsup_results.json")
    for line, word in zip(commands.splitlines(), ("finetune", "convert", "analyze"), strict=True):
        assert f" {word} " in line and "/model" in line  # whole, to be pasted, however long
    assert "expected loss  41.1 +- 4.1 at first (1 x masked_lm_loss + 50 x disc_loss)" in out  # ln 600 + 50 ln 2
    first = float(out.split("first loss")[1].split()[0])
    assert first == pytest.approx(41.05, rel=0.1)
    folder = tmp_path / "model"
    assert json.loads((folder / "config.json").read_text())["num_train_steps"] == 4
    results = json.loads((folder / "results" / "unsup_results.json").read_text())
    names = "masked_lm_accuracy masked_lm_loss sampled_masked_lm_accuracy disc_loss disc_auc disc_accuracy"
    names += " hidden_masked_lm_loss hidden_masked_lm_accuracy cls_cosine token_cosine"
    assert {*names.split(), "disc_precision", "disc_recall", "replaced_rate", "majority_baseline"} <= results.keys()
    assert results["step"] == 4
    lines = (folder / "results" / "unsup_results.txt").read_text().splitlines()
    assert f"disc_loss = {results['disc_loss']}" in lines
    events = [event for path in (folder / "events").iterdir() for event in summary_iterator(str(path))]
    assert {"eval/disc_auc", "train/disc_recall"} <= {value.tag for event in events for value in event.summary.value}

    code, out, _ = run(settings, "--do-eval")
    assert code == 0 and "Nothing to train" in out and "expected" not in out
    assert json.loads((folder / "results" / "unsup_results.json").read_text()) == results


def test_a_longer_schedule_goes_on(run, trained, settings, tmp_path):
    code, out, _ = run(settings | {"num_train_steps": 6})
    assert code == 0 and "resuming" in out and "at step 4" in out and "expected loss  4" not in out
    assert [line["step"] for line in support.logged(tmp_path / "model")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"pretrain_tfrecords": "/nowhere/*"}, "no file matches"),
        ({"num_gpus": 99}, "num_gpus is 99"),
        ({"num_train_steps": 0, "num_warmup_steps": 0}, "less than one step"),
        ({"results_txt": "/proc/nowhere/x"}, "cannot write /proc/nowhere/x"),
        ({"vocab_file": "{model}/vocab.txt"}, "--overwrite would rename vocab_file"),
        ({"init_generator_checkpoint": "{model}"}, "--overwrite would rename init_generator_checkpoint"),
    ],
)
def test_overwrite_with_a_mistake_leaves_the_run(run, settings, tmp_path, mistake, message):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(PretrainingConfig.from_dict(settings).to_json())
    (model / "model.ckpt-4.index").write_text("")
    shutil.copy(settings["vocab_file"], model / "vocab.txt")
    mistake = {name: value.format(model=model) if isinstance(value, str) else value for name, value in mistake.items()}
    code, _, err = run(settings | mistake, "--overwrite", "--do-eval")
    assert code == 2 and message in err and "Traceback" not in err
    assert sorted(path.name for path in model.iterdir()) == ["config.json", "model.ckpt-4.index", "vocab.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_run_that_diverged_goes_on_with_a_lower_learning_rate(run, trained, settings, tmp_path):
    wild = settings | {"learning_rate": 1e30, "num_warmup_steps": 2, "save_checkpoints_steps": 1}
    wild |= {"electra_objective": False}
    # It takes the place of another run, and starts again.
    code, out, err = run(wild, "--overwrite")
    assert code == 2 and "resuming" not in out
    assert [line["step"] for line in support.logged(tmp_path / "model")] == [1, 2]
    assert [line["step"] for line in support.logged(tmp_path / "model.old-1")] == [1, 2, 3, 4]
    assert "not finite at step 3" in err and "lower learning_rate" in err
    # The update of the last checkpoint had ruined its weights; the message says what to do about it.
    assert f"delete {tmp_path / 'model' / 'model.ckpt-2'}.*" in err
    for path in (tmp_path / "model").glob("model.ckpt-2.*"):
        path.unlink()
    code, out, err = run(wild | {"learning_rate": 1e-4})
    assert code == 0 and "learning_rate was 1e+30, is 0.0001" in out and "resuming" in out, out + err
    assert json.loads((tmp_path / "model" / "config.json").read_text())["learning_rate"] == 1e-4


def test_warm_start_reports_what_it_loaded_and_starts_at_step_0(run, trained, settings, tmp_path):
    warm = settings | {"model_dir": str(tmp_path / "warm"), "init_checkpoint": str(tmp_path / "model")}
    code, out, err = run(warm, "--no-do-train", "--do-eval")
    assert (
        code == 0
        and ": loaded " in out
        and "new here" not in out
        and "not used" not in out
        and "initial weights" not in out
    ), out + err
    of_step_4 = json.loads((tmp_path / "model" / "results" / "unsup_results.json").read_text())
    of_start = json.loads((tmp_path / "warm" / "results" / "unsup_results.json").read_text())
    assert (of_step_4.pop("step"), of_start.pop("step")) == (4, 0)
    assert of_start == of_step_4


def test_a_run_of_debug_is_evaluated_as_it_is_and_makes_room_for_the_real_one(run, settings, tmp_path):
    """The original's commands one after another, the first of them with debug. There it deletes the folder."""
    model = tmp_path / "model"
    real = settings | {"hidden_size": 32, "num_attention_heads": 2}
    for name in ("model_hparam_overrides", "num_train_steps", "num_warmup_steps"):
        settings.pop(name, None)
    code, out, err = run(settings | {"debug": True})
    assert code == 0 and "to fine-tune it: " in out, out + err
    code, out, err = run(settings, "--no-do-train", "--do-eval")
    assert code == 0 and "evaluation at step 20" in out, out + err
    assert f"note: {model} holds a run of debug, which is evaluated" in err
    [problem] = problems_of_start(str(model))
    assert "of a run of debug" in problem
    code, out, err = run(real | {"pretrain_tfrecords": "/nowhere/*"})  # a mistake leaves it where it is
    assert code == 2 and (model / "model.ckpt-20.index").exists()
    code, out, err = run(real)
    assert code == 0 and f"{model} held a run of debug: that is in {model}.old-1 now" in out, out + err
    assert (tmp_path / "model.old-1" / "model.ckpt-20.index").exists()
    assert json.loads((model / "config.json").read_text())["debug"] is False
    code, out, err = run(settings | {"debug": True})  # the other way round nothing is renamed
    assert code == 2 and "holds a run with other hparams" in err
    assert (model / "model.ckpt-4.index").exists()


@pytest.mark.parametrize("name", ["model.ckpt-400", "electra_base"])
def test_a_released_model_is_where_a_new_run_starts_and_not_one_that_goes_on(run, settings, tmp_path, name):
    """The original goes on in the released folder, whose checkpoint is named like the model."""
    model = tmp_path / "model"
    model.mkdir()
    for path in golden.CHECKPOINT.glob("model.ckpt-400.*"):
        shutil.copy(path, model / path.name.replace("model.ckpt-400", name))
    shutil.copy(golden.CHECKPOINT / "vocab.txt", model)
    (model / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    files = sorted(model.iterdir())
    for words in ([], ["--dry-run"], ["--no-do-train", "--do-eval"]):
        code, out, err = run(settings, *words)
        assert code == 2 and f"--init-checkpoint {model}" in err and "model of another program" in err, out + err
        assert ("To evaluate it, name it as a start" in err) == ("--no-do-train" in words), err
    assert sorted(model.iterdir()) == files


def test_hparams_without_a_recipe_differ_from_the_defaults(run, settings):
    settings["model_name"] = "my_electra"
    code, out, err = run(settings, "--dry-run")
    assert code == 0 and "there is no recipe 'my_electra'" in err, out + err
    assert "hparams        other than the defaults: " in out
    code, out, err = run(settings | {"recipe": "electra_small"}, "--dry-run")
    assert code == 0 and "hparams        other than the recipe's: " in out, out + err


def test_without_held_out_records_the_training_records_are_evaluated_with_a_warning(run, trained, settings, tmp_path):
    copy = tmp_path / "data" / "pretrain_tfrecords"
    support.write_records(copy)
    code, _, err = run(settings | {"data_dir": str(tmp_path / "data")}, "--no-do-train", "--do-eval")
    assert code == 0, err
    assert "WARNING: no held-out records match" in err and "WARNING: evaluated on training records" in err
    folder = tmp_path / "model"
    assert json.loads((folder / "results" / "unsup_results.json").read_text())["on_training_records"] == 1
    assert "**text that it was trained on**" in "".join(cards._scores(with_config(read_model(folder)), ""))


def test_what_is_made_of_a_run_says_that_it_was_stopped(trained, tmp_path):
    stored = with_config(read_model(tmp_path / "model"))
    assert stored.progress == "" and "Trained for" not in cards.training(stored)
    stopped = stored.changed(hparams=stored.hparams | {"num_train_steps": 1000})
    assert stopped.progress == "4 of 1,000 steps"
    assert "**Trained for 4 of 1,000 steps.**" in cards.training(stopped)


def test_a_model_that_is_trained_further_is_evaluated_before_that(run, trained, settings, tmp_path):
    further = settings | {"model_dir": str(tmp_path / "further"), "init_checkpoint": str(tmp_path / "model")}
    code, out, err = run(further, "--do-eval")
    assert code == 0 and out.count("evaluation at step 0:") == out.count("evaluation at step 4:") == 1, out + err
    # Among the evaluations that curves are drawn of.
    assert json.loads((tmp_path / "further" / "eval" / "step-0.json").read_text()).keys() >= {"masked_lm_loss"}
    code, out, err = run(settings | {"model_dir": str(tmp_path / "new")}, "--do-eval")
    assert code == 0 and "evaluation at step 0:" not in out, out + err


def test_a_run_without_a_checkpoint_is_not_evaluated(run, settings, tmp_path):
    """Nobody wants the scores of random weights: the folder's name was mistyped, or the run has not saved yet."""
    code, _, err = run(settings, "--no-do-train", "--do-eval")
    assert code == 2 and f"nothing was trained in {tmp_path / 'model'} yet" in err and "Traceback" not in err
    assert not (tmp_path / "model").exists()
    code, out, err = run(settings | {"num_train_steps": 0}, "--no-do-train", "--do-eval")  # asked for in so many words
    assert code == 0 and "evaluation at step 0" in out, err


def test_a_dry_run_writes_nothing_leaves_the_run_and_asks_nothing_of_evaluations(run, settings, tmp_path):
    code, _, err = run(settings | {"init_checkpoint": "/nowhere/model.ckpt-1"}, "--dry-run")
    assert code == 2 and "no model at /nowhere/model.ckpt-1" in err and list(tmp_path.iterdir()) == []
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(PretrainingConfig.from_dict(settings).to_json())
    (model / "model.ckpt-4.index").write_text("")
    other = settings | {"weight_decay_rate": 0.1}
    for words, advice in ((["--dry-run"], "or --overwrite"), (["--no-do-train", "--do-eval"], "Evaluate it with its")):
        code, _, err = run(other, *words)
        assert code == 2 and "weight_decay_rate was 0.01, is 0.1" in err and advice in err
    other |= {"strategy": "mirrored", "eval_batch_size": 9, "electra_objective": False}
    code, out, err = run(other, "--dry-run", "--overwrite")
    assert " TFLOP/s, " in out
    assert code == 0 and "examples/s" in out and "GB of memory" in out and "4 steps would take" in out, err
    assert sorted(path.name for path in model.iterdir()) == ["config.json", "model.ckpt-4.index"]


def damage(folder, kind):
    first = sorted(folder.glob("pretrain_data*"))[0]
    if kind == "truncated":
        first.write_bytes(first.read_bytes()[:-5])
    elif kind == "empty":
        for path in folder.iterdir():
            path.write_bytes(b"")
    elif kind == "none":
        shutil.rmtree(folder)
    elif kind == "text":
        first.write_text("This is not a TFRecord file, it is a text of more than sixteen characters.")


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("", {"vocab_file": "/nowhere/vocab.txt"}, "/nowhere/vocab.txt"),
        ("", {"vocab_size": 700}, "vocab_size is 700, but"),
        ("", {"max_seq_length": 32}, "record 1 has length 16, but max_seq_length is 32"),
        ("none", {}, "pretrain_tfrecords: no file matches"),
        ("truncated", {}, "is truncated or no TFRecord"),
        ("text", {}, "is truncated or no TFRecord"),
        ("empty", {}, "hold no record; was the corpus empty?"),
        ("", {"init_checkpoint": "/nowhere/model.ckpt-1"}, "no model at /nowhere/model.ckpt-1"),
        ("", {"stack_layers": True}, "stack_layers needs --init-checkpoint"),
        ("", {"train_batch_size": 9, "strategy": "mirrored"}, "train_batch_size 9 is not divisible by 2 devices"),
    ],
)
def test_bad_input_is_one_line(run, settings, tmp_path, kind, change, message):
    folder = tmp_path / "data" / "pretrain_tfrecords"
    support.write_records(folder)
    damage(folder, kind)
    code, _, err = run(settings | {"data_dir": str(tmp_path / "data")} | change)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(errors) == 1 and message in errors[0] and "Traceback" not in err
    assert not (tmp_path / "model").exists()  # so the mended command may have its name


def test_a_checkpoint_of_other_sizes_without_its_configuration_is_refused(run, trained, settings, tmp_path):
    (tmp_path / "model" / "config.json").unlink()
    code, _, err = run(settings | {"embedding_size": 24})
    assert code == 2 and "is not a checkpoint of this model" in err and "Traceback" not in err


def test_what_a_first_step_does_not_need_is_not_imported(data_dir, monkeypatch):
    monkeypatch.delenv("TF_USE_LEGACY_KERAS")  # conftest.py's
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")  # what the import writes to standard error is asked for
    process = support.start(**support.hparams(data_dir, max_seq_length=32))  # not the records': an early end
    _, errors = process.communicate()
    assert process.returncode == 2 and "max_seq_length" in errors
    imported = {line.rsplit("|", 1)[-1].strip() for line in errors.splitlines() if line.startswith("import time:")}
    assert "tf_keras.src.optimizers" in imported  # what TensorFlow imports of one Keras or the other
    unwanted = {"keras.src.optimizers", "orbit", "official", "pandas.core", "scipy.sparse._base", "rich"}
    assert unwanted & imported == set()
