"""Every command of README and guides, run in their order on a small corpus with small models.

`SMALLER` says how a program's commands are made small, `INSTEAD` what stands for a number that a command gives. A
command of a program without an entry fails, and so does a number that nothing stands for: add it here.
"""

import contextlib
import io
import itertools
import json
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support import finetuning as support
from tests.support.corpora import write_archive
from tests.support.pages import COMMAND_PAGES, PAGES, blocks, commands, commands_in, program_of
from tests.support.programs import run_program

README = PAGES[Path("README.md")]
_NETWORK = {
    "--hidden-size": "32",
    "--num-hidden-layers": "4",
    "--num-attention-heads": "2",
    "--intermediate-size": "64",
    "--embedding-size": "32",
    "--vocab-size": "VOCABULARY",
}
# Program, or program and a switch -> flags that its commands get, in place of their own of that name.
SMALLER: dict[str, dict[str, str]] = {
    "build_vocab.py": {"--vocab-size": "400"},
    "build_pretraining_dataset.py": {"--max-seq-length": "32", "--dev-fraction": "0.2", "--num-processes": "1"},
    # In a folder of its own: the records of one's own text are in data/ already.
    "build_openwebtext_pretraining_dataset.py": {
        "--data-dir": "openwebtext_data",
        "--max-seq-length": "32",
        "--num-processes": "1",
    },
    "run_pretraining.py": _NETWORK
    | {
        "--max-seq-length": "32",
        "--num-train-steps": "4",
        "--num-warmup-steps": "1",
        "--iterations-per-loop": "2",
        "--train-batch-size": "8",
        "--eval-batch-size": "8",
        "--num-eval-steps": "2",
    },
    "run_finetuning.py": {"--train-batch-size": "8", "--num-train-epochs": "1", "--max-seq-length": "64"},
    "run_finetuning.py --predict": {},
    "run_finetuning.py --prompt": {
        "--num-train-epochs": "1",
        "--max-seq-length": "128",
        "--prompt-draws": "1",
        "--prompt-evaluation-draws": "1",
    },
    "plan_pretraining.py": {},
    "run_analysis.py": {},
    "convert_model.py": {},
}
# Numbers that commands give, and what stands for them; None: themselves.
INSTEAD: dict[str, str | None] = {
    "--eval-every-steps": "2",
    "--num-trials": "2",
    "--few-shot": "4",
    "--few-shot-seed": None,
    "--learning-rate": None,
    "--hours": None,
}
# Models that commands take for granted, beside those that the pages train.
TAKEN_FOR_GRANTED = shlex.split("electra pretrain --data-dir data --model-name coco_lm_small")
LEFT_BEHIND = """
    data/vocab.txt data/pretrain_tfrecords/metadata.json openwebtext_data/pretrain_tfrecords/metadata.json
    data/models/electra_small/config.json data/models/electra_small/train_metrics.jsonl
    data/models/electra_small/eval/step-4.json data/models/electra_small/events
    data/models/electra_small/results/unsup_results.json data/models/electra_small/results/cola,sst_results.txt
    data/models/electra_small/results/rte_results.json data/models/electra_small/results/ratings_results.json
    data/models/electra_small/finetuning_models/rte_model_2/scores.json data/models/electra_small/test_predictions
    data/models/coco_lm_small/results/mnli_results.json new.jsonl.predictions.jsonl
    data/models/electra_evening/results/reviews_results.json labelled.csv
    data/analysis/curves.png data/analysis/cosine.json data/analysis/tsne.pdf data/analysis/copying.png
    small/vocab.txt small/models/mine/results/unsup_results.json
"""


def small(words: list[str]) -> list[str]:
    """Script and flags of `electra ...`, made small."""
    words = program_of(words)
    entry = next((entry for entry in SMALLER if " " in entry and {*entry.split()} <= {*words}), words[0])
    smaller = SMALLER[entry]
    for flag, word in itertools.pairwise(words):
        if flag.startswith("--") and word.replace(".", "").replace("e-", "").isdigit():
            assert flag in smaller or flag in INSTEAD, (
                f"{shlex.join(words)}: nothing says what stands for {flag} {word}"
            )
    result = list(words)
    for flag, value in ({flag: value for flag, value in INSTEAD.items() if flag in words and value} | smaller).items():
        if flag in result:
            result[result.index(flag) + 1] = value
        else:
            result += [flag, value]
    return result


def commands_of(*pages: str) -> list[list[str]]:
    return [words for page in pages for words in commands(page) if words[0] == "electra"]


def write_inputs(folder: Path) -> None:
    """A corpus, OpenWebText's archives, files of tasks, texts to label."""
    pick = random.Random(0)
    words = [a + b + c for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "ra", "lo", "s", "mit", "")]

    def sentence() -> str:
        said = " ".join(pick.choices(words, k=pick.randint(4, 9)))
        return pick.choice([f"yes , {said} .", f"no , {said} .", f"maybe {said} ?"])

    documents = ["\n".join(sentence() for _ in range(pick.randint(4, 12))) for _ in range(80)]
    (folder / "corpus").mkdir()
    for part in range(2):
        (folder / "corpus" / f"{part}.txt").write_text("\n\n".join(documents[part::2]) + "\n")
    archives = folder / "openwebtext_data" / "openwebtext"
    archives.mkdir(parents=True)
    texts = {f"{number:04}-x.txt": text.encode() for number, text in enumerate(documents[:20])}
    write_archive(archives / "urlsf_subset00-1_data.xz", texts)

    tasks = folder / "data" / "finetuning_data"

    def write(task: str, split: str, rows: list[dict[str, Any]]) -> None:
        support.write_lines(tasks / task / f"{split}.jsonl", *map(json.dumps, rows))

    labels = {"rte": ["entailment", "not_entailment"], "mnli": ["entailment", "neutral", "contradiction"]}
    for split in ("train", "dev", "test"):
        for task in ("cola", "sst"):
            write(task, split, [{"sentence": sentence(), "label": str(n % 2)} for n in range(24)])
        pairs = [{"sentence1": sentence(), "sentence2": sentence()} for _ in range(48)]
        write("rte", split, [pair | {"label": labels["rte"][n % 2]} for n, pair in enumerate(pairs)])
        for name in [split] if split == "train" else [f"{split}_matched", f"{split}_mismatched"]:
            write("mnli", name, [pair | {"label": labels["mnli"][n % 3]} for n, pair in enumerate(pairs)])
        write("sts", split, [pair | {"score": 5.0 if n % 2 else 1.0} for n, pair in enumerate(pairs)])
        ratings = [{"title": sentence(), "body": sentence(), "stars": str(n % 3)} for n in range(24)]
        write("ratings", split, ratings)
    rows = [f'"{sentence()}",{["negative", "positive"][n % 2]}' for n in range(40)]
    support.write_lines(folder / "reviews.csv", "text,label", *rows)
    support.write_lines(folder / "new.csv", "id,text", *(f'{n},"{sentence()}"' for n in range(5)))
    support.write_lines(folder / "new.jsonl", *(json.dumps({"sentence": sentence(), "id": n}) for n in range(5)))


def run(words: list[str]) -> str:
    """Output of a command that was made small."""
    vocab = next((value for flag, value in itertools.pairwise(words) if flag in ("--data-dir", "--vocab-file")), "")
    path = Path(vocab) if vocab.endswith(".txt") else Path(vocab, "vocab.txt")
    size = str(len(path.read_text(encoding="utf-8").splitlines())) if path.exists() else ""
    script, *rest = [size if word == "VOCABULARY" else word for word in small(words)]
    done = run_program(script, *rest)
    assert done.returncode == 0, f"{shlex.join([script, *rest])}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    print(f"ran {shlex.join(words)}", flush=True)
    return done.stdout


def words_of(line: str) -> str:
    """A line that was printed, without its numbers and the width of its columns; of a comment, what it is about."""
    if line.startswith("# "):
        return line[:13].rstrip("s ")
    return re.sub(r"\d[\d.,e+-]*", "#", " ".join(line.split()))


def first_cell(line: str) -> str:
    """Returns what stands left in a row of a summary or a table that was printed; of other lines nothing."""
    cell, *others = re.split(r" {2,}", line)
    return words_of(cell) if others else ""


def test_the_readmes_commands_print_what_it_shows(tmp_path, monkeypatch):
    """A block of text after one of commands is what the last of them prints, but for numbers and "..."."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    printed = ""
    for language, block in found:
        if language == "":
            for words in (words for words in commands_in(block) if words[0] == "electra"):
                printed = run(words)
        elif language == "text" and printed:
            lines = {words_of(line) for line in printed.splitlines()}
            assert [line for line in block.splitlines() if line != "..." and words_of(line) not in lines] == []


def test_the_readmes_python_prints_what_it_shows():
    shown = blocks("README.md", "text")
    assert ".embed(" in blocks("README.md", "python")[0]
    for number, block in enumerate(blocks("README.md", "python")):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, "README.md", "exec"), {})
        numbers = [[float(one) for one in re.findall(r"\d\.\d+", text)] for text in (out.getvalue(), shown[number])]
        assert words_of(out.getvalue()) == words_of(shown[number])
        assert numbers[0] == pytest.approx(numbers[1], abs=0.011)


@pytest.mark.slow
def test_the_commands_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    vocab = tmp_path / "data" / "vocab.txt"
    trained = False
    for page in COMMAND_PAGES[1:]:
        printed: set[str] = set()
        for words in commands_of(page):
            if words[1] == "build-openwebtext":
                (tmp_path / "openwebtext_data" / "vocab.txt").write_bytes(vocab.read_bytes())
            if words[1] in ("finetune", "analyze") and not trained:
                run(TAKEN_FOR_GRANTED)
                trained = True
            printed |= {first_cell(line) for line in run(words).splitlines()}
        shown = {first_cell(line) for block in blocks(page, "text") for line in block.splitlines()}
        assert shown <= printed, page
    assert [name for name in LEFT_BEHIND.split() if not (tmp_path / name).exists()] == []
    predictions = [json.loads(line) for line in (tmp_path / "new.jsonl.predictions.jsonl").read_text().splitlines()]
    assert [row["id"] for row in predictions] == list(range(5))
