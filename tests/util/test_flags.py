"""Command lines: layers of a configuration, spelling of flags, one-line errors."""

import dataclasses
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config import recipes
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.util.errors import UserError
from tests.support.programs import PROGRAMS, flags_of_its_own
from tests.support.programs import run_command as electra

ROOT = Path(__file__).parents[2]


@pytest.fixture
def own_flags() -> Iterator[flags.FlagValues]:
    """Flags of the test's own, none defined."""
    with flags_of_its_own() as values:
        yield values


@pytest.fixture
def parse(own_flags: flags.FlagValues) -> Any:
    """A function from words of a command line to the configuration they mean."""
    util_flags.define_hparam_flags(PretrainingConfig)

    def run(*words: str) -> PretrainingConfig:
        util_flags.parse(words)
        return util_flags.config_from_flags(PretrainingConfig, implied_by=implied_hparams)

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {"model_name": "electra_small", "data_dir": "data", "train_batch_size": 128}),
        (["--model-name", "electra_base"], {"model_size": "base", "model_dir": "data/models/electra_base"}),
        (["--recipe", "electra_base"], {"model_name": "electra_base", "max_seq_length": 512}),
        (
            ["--recipe=electra_base", "--model-name", "electra-mine"],
            {"model_name": "electra-mine", "model_size": "base"},
        ),
        (["--hparams", '{"model_name": "electra_large"}'], {"mask_prob": 0.25}),
        (["--no-lower-case", "--data-dir=my-data"], {"do_lower_case": False, "data_dir": "my-data"}),
        (["--mask-rates", "[0.8, 0.1, 0.1]"], {"mask_rates": [0.8, 0.1, 0.1]}),
        (
            ["--model-hparam-overrides", '{"num_hidden_layers": 2}'],
            {"model_hparam_overrides": {"num_hidden_layers": 2}},
        ),
    ],
)
def test_words_are_what_they_say(parse: Any, words: list[str], expected: dict[str, Any]) -> None:
    found = parse(*words)
    assert {name: getattr(found, name) for name in expected} == expected


def test_another_name_without_a_recipe_needs_hparams_and_means_the_defaults(
    parse: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="no recipe 'electra_bse'; did you mean 'electra_base'"):
        parse("--model-name", "electra_bse", "--train-batch-size", "64")
    c = parse("--model-name", "electra_bse", "--hparams", '{"mask_prob": 0.2, "train_batch_size": 128}')
    assert (c.model_size, c.mask_prob) == ("small", 0.2)
    assert "no recipe 'electra_bse'" in capsys.readouterr().err


def test_what_differs_from_the_recipe_is_told(parse: Any) -> None:
    parse("--recipe", "electra_base", "--train-batch-size", "256", "--mask-prob", "0.2", "--num-gpus", "1")
    assert util_flags.changed_hparams(PretrainingConfig) == {"mask_prob": 0.2, "num_gpus": 1}


def test_what_a_recipe_or_a_default_has_is_not_told_as_different(parse: Any) -> None:
    """Also entries of a recipe's dict, and lists."""
    same = ("--hidden-size", "192", "--mask-rates", "[1.0, 0.0, 0.0]", "--phases", "[]")
    parse("--recipe", "electra_mini", *same, "--num-attention-heads", "3")
    assert util_flags.changed_hparams(PretrainingConfig) == {"num_attention_heads": 3}


def test_flags_beat_hparams_beat_recipe_beats_defaults(parse: Any) -> None:
    c = parse(
        "--recipe=electra_base",
        "--hparams",
        '{"train_batch_size": 32, "max_seq_length": 256, "vocab_size": 1000}',
        "--train-batch-size=64",
    )
    assert (c.train_batch_size, c.max_seq_length, c.vocab_size, c.learning_rate) == (64, 256, 1000, 2e-4)
    assert c.eval_batch_size == 128
    sizes = '{"num_hidden_layers": 6, "hidden_size": 128}'
    c = parse("--hparams", '{"num_hidden_layers": 2}', "--model-hparam-overrides", sizes)
    assert c.architecture.num_hidden_layers == 6


def test_vocab_size_is_the_vocabularys_where_nobody_set_another(parse: Any, tmp_path: Path) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    here, of_recipe = ["--data-dir", str(tmp_path)], ["--recipe", "electra_tiny"]
    assert parse().vocab_size == 30522 and parse(*here).vocab_size == 7
    assert parse("--data-dir", "data", *of_recipe).vocab_size == 8192 and parse(*here, *of_recipe).vocab_size == 7
    assert parse("--data-dir", "data", "--vocab-file", str(tmp_path / "vocab.txt")).vocab_size == 7
    assert parse(*here, "--vocab-size", "9").vocab_size == 9  # which is refused when a run begins


def test_a_tilde_is_the_home_folder_wherever_a_path_is_written(
    parse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell expands it in words of their own alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "base.json").write_text('{"eval_tfrecords": "~/dev*"}')
    (tmp_path / "mine.json").write_text('{"extends": "~/base.json", "pretrain_tfrecords": "~/train*"}')
    config = parse(f"--recipe={tmp_path}/mine.json", '--hparams={"data_dir": "~/data ~"}', "--model-name=x")
    assert config.pretrain_tfrecords == f"{tmp_path}/train*" and config.eval_tfrecords == f"{tmp_path}/dev*"
    assert config.data_dir == f"{tmp_path}/data ~"
    assert PretrainingConfig.from_dict({"data_dir": "~/d", "model_name": "~"}).data_dir == f"{tmp_path}/d"


_WHERE_RUNS_WRITE = ["data_dir", "model_dir", "results_dir", "results_txt", "results_json"]


@pytest.mark.parametrize("names", [[name] for name in _WHERE_RUNS_WRITE] + [_WHERE_RUNS_WRITE], ids=" ".join)
@pytest.mark.parametrize("config_class", [PretrainingConfig, FinetuningConfig])
def test_what_follows_from_the_home_folder_is_in_it_and_is_read_again_as_it_was_written(
    config_class: Any, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else results lay in a folder called ~, and a run that goes on looked for them elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    rest = {"model_name": "m"} if config_class is PretrainingConfig else {"model": "electra_mini"}
    config = config_class.from_dict(rest | dict.fromkeys(names, "~"))
    written = json.loads(json.dumps(dataclasses.asdict(config)))
    for name in names:
        assert written[name] == str(tmp_path)
    if "results_dir" in names and "results_txt" not in names:
        assert written["results_txt"].startswith(f"{tmp_path}/")
    assert not [value for value in written.values() if isinstance(value, str) and value.startswith("~")]
    assert config_class.from_dict(written) == config


@pytest.mark.parametrize("given", ["~", "~/data"])
def test_a_home_folder_that_nobody_knows_is_no_folder_called_so(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as a user without a name (docker --user)."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(UserError, match=f"{given}: there is no home folder for ~"):
        PretrainingConfig.from_dict({"data_dir": given, "model_name": "m"})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--do-eval", True),
        ("--do_eval", True),
        ("--do-eval=true", True),
        ("--do-eval=false", False),
        ("--no-do-eval", False),
        ("--nodo_eval", False),
        ("--no_do_eval", False),
        ("--no-eval", False),
    ],
)
def test_spellings_of_a_switch(parse: Any, word: str, expected: bool) -> None:
    assert parse("--hparams", json.dumps({"do_eval": not expected}), word).do_eval is expected


@pytest.mark.parametrize(
    ("command", "script"),
    [("pretrain", "run_pretraining"), ("finetune", "run_finetuning"), ("flops", "flops_computation")],
)
def test_help_shows_what_a_first_run_needs_and_names_the_way_to_the_rest(command: str, script: str) -> None:
    with flags_of_its_own():
        first = runpy.run_path(str(PROGRAMS / f"{script}.py"))["FIRST"]
    shown, every = (
        {name.replace("-", "_") for name in re.findall(r"^  --(?:\[no-\])?([\w-]+)", out, re.MULTILINE)}
        for _, out, _ in (electra(command, "--help"), electra(command, "--help", "all"))
    )
    assert shown == {*first, "verbosity", "flagfile"} < every and len(shown) <= 33 < 100 < len(every)
    assert "--help all lists" in electra(command, "--help").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mask-rates", "0.8,0.1"], "--mask-rates: not valid JSON"),
        (["--hparams", "none.json"], "'none.json' is neither a JSON object nor a readable file"),
        (["--hparams", '{"learning_rat": 1}'], "did you mean 'learning_rate'?"),
        (["--recipe", "electra_bse"], "did you mean 'electra_base'?"),
        (["--train-batch-size", "0"], "train_batch_size must be at least 1"),
    ],
)
def test_wrong_values_are_named(parse: Any, words: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(*words)
    assert message in str(error.value)


@pytest.mark.parametrize(("words", "level"), [([], "3"), (["--verbosity=-1"], "1")])
def test_tensorflows_messages_are_hidden_unless_asked_for(words: list[str], level: str) -> None:
    program = """
import os, sys
from electra_tf2.config import flags
sys.argv[0] = "program.py"
flags.run(lambda: print(os.environ["TF_CPP_MIN_LOG_LEVEL"]), "")
"""
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{level}\n", "")


def test_help_names_every_hparam() -> None:
    code, out, err = electra("pretrain", "--help", "all")
    assert (code, err) == (0, "")
    for field in dataclasses.fields(PretrainingConfig):
        name = field.name.replace("_", "-")
        assert re.search(rf"^  --(\[no-\])?{name}\s", out, re.MULTILINE), name
    for heading in ("ELECTRA", "COCO-LM", "Steps and learning rate", "Generator", "Files"):
        assert f"\n{heading}\n" in out
    assert max(len(line) for line in out.splitlines()) <= 120


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train-batch-siz", "4"], "unknown flag --train-batch-siz; did you mean '--train-batch-size'? See --help"),
        (["--train-batch-size", "four"], "--train-batch-size must be an integer, got 'four'; see --help"),
        (["--do-eval=maybe"], "--do-eval must be true or false, got 'maybe'; see --help"),
        (
            ["--do-eval", "false"],
            "unexpected argument 'false': flags are --name value, lists --name a,b, switches --name or --no-name",
        ),
        (["--no-do-train"], "do_train and do_eval are both false: nothing to do"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    assert electra("pretrain", *words) == (2, "", f"error: {message}\n")


def test_an_error_is_one_line_that_can_be_written() -> None:
    assert str(UserError("of \ud800\n  two lines\n")) == "of \\ud800 two lines"


def test_debug_comes_before_the_recipe_and_after_flags(parse: Any) -> None:
    c = parse("--recipe", "electra_base", "--debug", "--train-batch-size", "16", "--hidden-size", "72")
    assert (c.train_batch_size, c.num_train_steps, c.learning_rate) == (16, 20, 2e-4)
    assert (c.architecture.hidden_size, c.architecture.num_hidden_layers) == (72, 3)


def test_help_lists_the_choices_that_it_does_not_explain(own_flags: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    field = PretrainingConfig.__dataclass_fields__["crop_mode"]
    monkeypatch.setattr(field, "metadata", field.metadata | {"help": "raw, or the body"})
    util_flags.define_hparam_flags(PretrainingConfig)
    assert str(own_flags["crop_mode"].help).startswith("<body|raw_cls>: raw, or")


def test_a_section_goes_on_from_the_one_that_it_extends(tmp_path: Path) -> None:
    own = {"finetuning": {"learning_rate": 1e-5, "per_task": {"sts": {"num_train_epochs": 1}}}}
    (tmp_path / "own.json").write_text(json.dumps({"extends": "bert_mini"} | own))
    base, found = (recipes.read_recipe(name, "finetuning") for name in ("bert_mini", str(tmp_path / "own.json")))
    assert found["learning_rate"] == 1e-5 and found["classifier_pooling"] == "mean"
    assert found["per_task"] == base["per_task"] | {"sts": {"num_train_epochs": 1}}
