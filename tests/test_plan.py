"""A plan for a small budget: what it chooses by, that its commands are legal, and that they run in their order."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from electra_tf2.pretrain import speed
from electra_tf2.pretrain.flops import training_flops
from electra_tf2.pretrain.plans import EXPECTED, MOST_EPOCHS, RULES, export_formats, held_out_share, make_plan
from tests.support.programs import ROOT, configured, run_program


def recipes(plan):
    return [run.stage.recipe for run in plan.runs]


def test_what_a_plan_expects_is_what_the_guide_states():
    page = (ROOT / "docs" / "small_budgets.md").read_text(encoding="utf-8")
    for flops, detection, fine_tuning in EXPECTED:
        (row,) = re.findall(rf"^\| [^|]+ \| {flops:.1e} \|.*$".replace("e+", "e"), page, re.MULTILINE)
        figures = re.findall(r"\d+\.\d+", f"{detection}; {fine_tuning}")
        assert [cell.strip().split(" ")[0] for cell in row.split("|")[4:] if cell.strip()] == figures


def test_the_budget_chooses_the_stages_and_is_spent():
    for budget, last in ((2e13, "electra_tiny"), (8e14, "electra_mini"), (6e15, "electra_deep")):
        plan = make_plan(300e6, budget)
        assert recipes(plan)[-1] == last and plan.vocab_size == 8192
        assert 0.98 * budget < plan.flops <= 1.02 * budget == 1.02 * plan.asked
        assert all(0 < run.warmup <= run.steps // 4 and run.warmup + run.decay <= run.steps for run in plan.runs)
    for rule in RULES:
        assert sum(stage.share for stage in rule.stages) == pytest.approx(1)


def test_a_plan_expects_what_the_nearest_measured_budget_below_reached_and_says_how_far_that_is():
    assert make_plan(300e6, 8e14).expected.endswith("measured at 5.8e+14 FLOP")
    assert make_plan(300e6, 8e14).expected.startswith("disc_auc 0.802; STS-B 82.1, SST-2 81.8, chunking 94.0 (a bag of")
    assert make_plan(300e6, 6e15).expected.startswith("disc_auc 0.802")
    assert "nearest measured budget below: this is 10 times as much" in make_plan(300e6, 6e15).expected
    assert make_plan(300e6, 2.3e13).expected == "disc_auc 0.64, measured at 2.3e+13 FLOP"  # no score of ours to compare
    assert make_plan(300e6, 1.1e14).expected.endswith("this is 4.8 times as much")
    assert "chunking 95.6 (a bag of words: 73.0, 81.7, 88.5), measured" in make_plan(900e6, 4e16).expected
    assert make_plan(300e6, 1e13).expected.startswith("less than was measured with the least budget, disc_auc 0.64 at")


def test_a_small_text_has_a_small_vocabulary_and_is_not_read_for_ever():
    plan = make_plan(3e6, 6e15)
    assert plan.vocab_size == 4096 and plan.epochs <= MOST_EPOCHS * 1.01 and plan.flops < 0.5 * plan.asked
    assert make_plan(300e6, 6e15).epochs < 5


def test_small_texts_hold_out_a_larger_share():
    """At the usual hundredth none of a hundred documents may be held out."""
    assert [held_out_share(size) for size in (1e5, 2.3e6, 4e6, 16.1e6, 300e6)] == [0.1, 0.09, 0.05, 0.01, 0.01]


def test_hours_may_be_minutes(tmp_path):
    (tmp_path / "a.txt").write_text("some text\n" * 1000)
    assert plan_of(tmp_path, "--minutes", "90") == plan_of(tmp_path, "--hours", "1.5")


def plan_of(folder: Path, *words: str) -> tuple[str, list[list[str]]]:
    (folder / "my corpus").mkdir(exist_ok=True)
    (folder / "my corpus" / "a.txt").write_text("the text of a file\n" * 5000)
    os.truncate(folder / "my corpus" / "a.txt", 100_000_000)  # its start and its size are looked at
    done = run_program("plan_pretraining.py", "--corpus-dir", str(folder / "my corpus"), *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.replace("\\\n", " ").splitlines()
    return done.stdout, [shlex.split(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("hours", ["0.1", "1", "2.5", "7"])
def test_the_commands_are_legal_and_cost_what_is_said(hours, tmp_path):
    shown, commands = plan_of(tmp_path, "--hours", hours, "--tflops", "0.2", "--data-dir", "d e")
    assert max(map(len, shown.splitlines())) <= 80 + len(str(tmp_path))
    assert commands[0] == ["set", "-e"] and all("electra_tf2" in words for words in commands[1:])
    assert commands[1][:4] == ["test", "-e", "d e/vocab.txt", "||"] and commands[1][-2:] == ["--vocab-size", "8192"]
    flops = 0
    for words in commands[3:]:
        config = configured(*words[words.index("pretrain") + 1 : -1])
        flops += training_flops(config) if words[-1] == "--do-eval" else 0
    assert f"{flops:.2g}" == re.findall(r"budget +(\S+) FLOP", shown)[0]
    assert f"{flops / 0.2e12 / 3600:.1f}" == f"{float(hours):.1f}"


def test_a_plan_says_whether_its_model_export_formats_hugging_face():
    """And if not, what to ask for instead: that plan's model can be exported."""
    rate = 0.2e12
    tiny = export_formats(make_plan(300e6, 2e13), rate)
    assert "but not Hugging Face" in tiny and "bert_mini and electra_mini can be exported there" in tiny
    [hours] = re.findall(r"--hours (\S+) or more", tiny)
    assert export_formats(make_plan(300e6, float(hours) * 3600 * rate), rate).startswith("Hugging Face, ")
    assert export_formats(make_plan(300e6, 6e15), rate).startswith("Hugging Face, ")
    assert "with more text, for the hours that you have" in export_formats(make_plan(0.6e6, 6e15), rate)


def test_this_machine_is_measured_and_the_plan_made_by_that(tmp_path, monkeypatch):
    """Whatever the rate is, hours times rate is the budget that is shown."""
    monkeypatch.setattr(speed, "_STEPS", 1)
    words = ["--corpus-dir", str(tmp_path / "my corpus"), "--hours", "0.05", "--measure"]
    plan_of(tmp_path)  # writes the corpus
    done = run_program("plan_pretraining.py", *words)
    assert done.returncode == 0 and "timing steps of " in done.stderr, done.stderr
    flops, rate = re.findall(r"budget +(\S+) FLOP: .* at (\S+) TFLOP/s\s+(?:# +)?\(measured\)", done.stdout)[0]
    assert float(flops) == pytest.approx(float(rate) * 1e12 * 180, rel=0.15)  # of two digits each, in whole steps
    assert done.stdout.startswith("# text ")  # the script alone, without what the timing says
    both = run_program("plan_pretraining.py", *words, "--tflops", "0.2")
    assert both.returncode == 2 and "--measure and --tflops: give one of them" in both.stderr


def test_the_script_finds_the_program_where_its_environment_is_not_active(tmp_path):
    (tmp_path / "a.txt").write_text("the text of a file\n" * 50)
    called = "import sys; sys.argv[0] = '/env/bin/electra'; from electra_tf2.__main__ import command; command()"
    command = [sys.executable, "-c", called, "plan", "--corpus-dir", str(tmp_path)]
    (tmp_path / "electra").write_text("")
    (tmp_path / "electra").chmod(0o755)
    for path, line in ((tmp_path, False), ("/nowhere", True)):
        env = os.environ | {"PATH": str(path), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert (f"PATH={Path(sys.executable).parent}:$PATH\n" in done.stdout) == line


def test_what_is_needed_is_said(tmp_path):
    assert "--corpus-dir is needed" in run_program("plan_pretraining.py").stderr
    words = ["--corpus-dir", str(tmp_path), "--hours", "0"]
    assert "--hours, --minutes and --tflops must be above 0" in run_program("plan_pretraining.py", *words).stderr


def test_text_in_tables_and_folders_below_is_counted_and_built(tmp_path):
    (tmp_path / "corpus" / "below").mkdir(parents=True)
    texts = [f"{number:080}" for number in range(12_000)]
    table = pyarrow.table({"body": texts})
    pyarrow.parquet.write_table(
        table, tmp_path / "corpus" / "below" / "a.parquet", compression=None, use_dictionary=False
    )
    words = ["--corpus-dir", str(tmp_path / "corpus"), "--recursive", "--text-field", "body"]
    done = run_program("plan_pretraining.py", *words)
    assert "about 2.02 MB of text" in done.stdout, done.stderr
    assert done.stdout.count("--text-field body --recursive") == 2


@pytest.mark.slow
def test_the_script_runs_and_runs_again(tmp_path):
    """All three stages, of a few steps each; a second time it finds everything done."""
    shown, _ = plan_of(tmp_path, "--hours", "7", "--tflops", "0.2", "--data-dir", str(tmp_path / "data"))
    text = "\n".join(f"{n} the file {n % 7} is open and the list {n % 11} of names" for n in range(4000))
    (tmp_path / "my corpus" / "a.txt").write_text(text)
    small = re.sub(r"--num-train-steps \d+", "--num-train-steps 8 --num-eval-steps 1", shown)
    small = re.sub(r"--(num-warmup|lr-decay)-steps \d+", r"--\1-steps 2", small)
    small = re.sub(r"--vocab-size \d+", "--vocab-size 400", small)
    (tmp_path / "plan.sh").write_text(small.replace("python -m", f"{sys.executable} -m"))
    for _ in range(2):
        done = subprocess.run(["sh", tmp_path / "plan.sh"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to train" in done.stdout
    assert (tmp_path / "data" / "models" / "electra_deep" / "results" / "unsup_results.json").exists()
