"""Languages without blanks between words: their sentences, and what the programs say of them."""

import itertools
import json
import random
import re
import shlex

import numpy as np
import pytest

from electra_tf2.corpus.scripts import sample_of, sentences, warnings_of
from electra_tf2.corpus.text_files import Corpus
from electra_tf2.programs.build_sentence_pairs import cropped, paragraphs
from tests.support.finetuning import write_lines
from tests.support.pages import program_of
from tests.support.programs import ROOT, run_program

CHINESE, JAPANESE = "今天天气很好。我们去公园吧！", "彼は「行く。」と言ったそうですがカタカナもあるのだ。本当か？"
THAI = "ฉันไปโรงเรียนทุกวันแต่เขาไม่ไป เพราะเขาป่วยมาก"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (CHINESE, ["今天天气很好。", "我们去公园吧！"]),
        ("他说：“好的。”你呢？（真的！）是", ["他说：“好的。”", "你呢？", "（真的！）", "是"]),
        (JAPANESE, ["彼は「行く。」と言ったそうですがカタカナもあるのだ。", "本当か？"]),
        ("円周率は３．１４です．覚えた｡", ["円周率は３．１４です．", "覚えた｡"]),
        (THAI, ["ฉันไปโรงเรียนทุกวันแต่เขาไม่ไป", "เพราะเขาป่วยมาก"]),
        ('He left. "Really?" Prof. x of U.S. is.', ["He left.", '"Really?"', "Prof. x of U.S. is."]),
        ("وہ گیا۔ وہ آیا۔", ["وہ گیا۔", "وہ آیا۔"]),
    ],
)
def test_sentences_end_where_their_scripts_end_them(line, expected):
    assert sentences(line) == expected


def test_letters_count_where_no_blanks_divide_words(tmp_path):
    write_lines(tmp_path / "a.txt", f"{CHINESE}是。", f"{THAI} x")
    assert list(paragraphs(Corpus(str(tmp_path)), 5, 40)) == [sentences(CHINESE), sentences(f"{THAI} x")]
    random = np.random.default_rng(0)
    kept = [cropped("北京 大学 is old", random) for _ in range(50)]
    assert all(re.fullmatch(r"北?京? ?大?学? ?(is)? ?(old)?", text) for text in kept) and len(set(kept)) > 9
    for text in (cropped("โรงเรียน", random) for _ in range(50)):
        assert "ี" not in text or "รี" in text  # a vowel stays with its consonant


@pytest.mark.parametrize(
    ("text", "undivided", "loses"),
    [
        (CHINESE, False, False),
        (JAPANESE, True, True),
        ("彼 は 行く と 言った そう です が カタカナ も ある の だ 。", False, True),
        (THAI, True, True),
        ("ฉัน ไป โรงเรียน ทุก วัน แต่ เขา ไม่ ไป", False, True),
        ("मैं स्कूल जाता हूँ", False, True),
        ("Tôi đi học. Der Käse. Ή ταν. Ёлка.", False, False),
        ("학교에 갔다", False, False),
    ],
)
def test_what_wordpiece_does_to_a_script_is_known(text, undivided, loses):
    kept, stripped = (warnings_of(sample_of(text * 20), strip_accents) for strip_accents in (False, True))
    assert [bool(kept), len(stripped) > len(kept)] == [undivided, loses]


@pytest.mark.parametrize(
    ("program", "text"),
    [
        *itertools.product(["plan_pretraining.py"], [JAPANESE, THAI, CHINESE]),
        *itertools.product(["build_vocab.py", "build_pretraining_dataset.py"], [THAI, CHINESE]),
    ],
)
def test_programs_say_what_comes_of_it(program, text, tmp_path):
    write_lines(tmp_path / "corpus" / "a.txt", *[text] * 200)
    write_lines(tmp_path / "vocab.txt", *["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"], *dict.fromkeys(text))
    of_program = {
        "plan_pretraining.py": [],
        "build_vocab.py": ["--vocab-file", tmp_path / "new.txt", "--vocab-size", "200"],
        "build_pretraining_dataset.py": ["--vocab-file", tmp_path / "vocab.txt", "--output-dir", tmp_path / "records"],
    }
    done = run_program(program, "--corpus-dir", str(tmp_path / "corpus"), *map(str, of_program[program]))
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stderr + done.stdout.replace("#", " ")).split())
    assert ("put blanks between words first" in said) == (text != CHINESE)
    assert ("--no-strip-accents" in said) == (text != CHINESE)
    if program == "plan_pretraining.py":
        assert ("--limit-alphabet 6000" in said) == (text != THAI)


SMALLER = shlex.split("--hidden-size 32 --num-hidden-layers 2 --num-attention-heads 2 --train-batch-size 8")


@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_chinese_walk_through_runs(trains, tmp_path, monkeypatch):
    """The commands of docs/data.md as they stand there, with a smaller network."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```bash\n(.*?)```", page[page.index("## Chinese") :], re.DOTALL)[:1]
    commands = block.replace("\\\n", " ").splitlines()
    source = random.Random(0)
    letters = [chr(0x4E00 + number) for number in range(200)]
    texts = ["".join(source.choices(letters, k=30)) + "。" for _ in range(200)]
    write_lines(tmp_path / "zh" / "a.txt", *texts)
    write_lines(
        tmp_path / "reviews.csv", "text,label", *(f"{text},{'好坏'[n % 2]}" for n, text in enumerate(texts[:40]))
    )
    paragraphs = []
    for n, text in enumerate(texts[:8]):
        answers = [{"text": text[5:8], "answer_start": 5}]
        paragraphs.append({"context": text, "qas": [{"id": str(n), "question": f"{text[:3]}。", "answers": answers}]})
    for split in ("train", "dev"):
        content = json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}, ensure_ascii=False)
        write_lines(tmp_path / "data" / "finetuning_data" / "cmrc" / f"{split}.json", content)
    monkeypatch.chdir(tmp_path)
    printed = []
    for command in commands if trains else commands[:4]:
        script, *words = program_of(shlex.split(command))
        done = run_program(script, *words, *(SMALLER if script == "run_pretraining.py" else []))
        assert done.returncode == 0, done.stdout + done.stderr
        printed.append(done.stdout + done.stderr)
    assert not any("[UNK]" in said or "put blanks between" in said for said in printed)
    assert "--limit-alphabet 6000" in printed[0] and "verified" in printed[3]
    assert not trains or ("cmrc" in printed[-1] and "f1" in printed[-1])
