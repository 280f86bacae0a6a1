"""ONNX and LiteRT files: their runtimes compute what our networks and heads do, on any batch and length."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import electra_tf2 as electra
from electra_tf2.corpus.encoding import Encoded
from electra_tf2.exports import card_programs, exportable, litert, onnx, saved_model, self_check, tag_programs
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.predictor import Predictor
from electra_tf2.util.errors import UserError
from tests.support import exports, golden
from tests.support import stored_models as support
from tests.support.programs import run_program
from tests.support.stored_models import dense

TEXTS = ("the man went to the house", "of", ("Some OTHER text, with Café.", "went of " * 40))
RUNTIMES = {"onnx": onnx.RUNTIME, "tflite": litert.RUNTIME, "saved_model": saved_model.RUNTIME}


def _check(kind: str, model: StoredModel, made: exportable.Exportable, folder: Path) -> dict[str, np.ndarray]:
    """Writes a file, holds it against the function on the fixed rows and on others, and returns its outputs."""
    written = exportable.write_network(folder, model, made, RUNTIMES[kind])
    assert written.difference < 1e-5, written
    run, _ = RUNTIMES[kind].load(folder / RUNTIMES[kind].file)
    rows = dict(zip(exportable.INPUTS, self_check.fixed_inputs(model, TEXTS), strict=True))
    assert max(made._replace(rows=rows).differences(run).values()) < 1e-5
    if kind != "tflite":  # whose own operations refuse arrays without numbers
        none = {name: value[:0] for name, value in rows.items()}
        assert all(value.shape[0] == 0 for value in run(none).values())
    return dict(run(rows))


# Sizes, and the part that goes out.
NETWORKS: list[tuple[dict[str, Any], str]] = [
    (
        {"share_layers": "ffn", "norm_style": "pre", "hidden_act": "relu", "num_hidden_layers": 2}
        | {"type_vocab_size": 0, "relative_positions": "t5"},
        "main",
    ),
    ({"architecture": "modernbert", "local_attention": 8, "num_hidden_layers": 2}, "body"),
    ({"relative_positions": "coco"}, "generator"),
    ({"relative_positions": "rotary"}, "main"),
]
_QUICK = ("onnx", 0), ("tflite", 1)  # kinds and networks; LiteRT, which gets them from TensorFlow, is slow
_ALL = [
    pytest.param(kind, *one, marks=() if (kind, number) in _QUICK else pytest.mark.slow)
    for number, one in enumerate(NETWORKS)
    for kind in ("onnx", "tflite")
]


@pytest.mark.parametrize(("kind", "sizes", "part"), _ALL)
def test_every_network_computes_the_same(kind: str, sizes: dict[str, Any], part: str, tmp_path: Path) -> None:
    model = support.with_crc_weights(sizes)
    found = _check(kind, model, exportable.make_exportable_network(model, part), tmp_path)
    assert found.keys() == set(json.loads((tmp_path / "model.json").read_text())["outputs"])


_COCO = {"electra_objective": False, "corrective_lm_objective": True}
PARTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("main", {}, {"last_hidden_state", "logits"}),
    ("body", {}, {"last_hidden_state", "sentence_embedding"}),
    ("generator", {}, {"logits"}),
    ("generator", {"generator_sample_mode": "zero_dropout"}, {"logits"}),
    ("main", {"electra_objective": False}, {"last_hidden_state", "logits"}),
    ("main", {"electra_objective": False, "electric_objective": True}, {"last_hidden_state", "logits"}),
    ("main", _COCO, {"last_hidden_state", "sentence_embedding"}),
]


@pytest.mark.parametrize("kinds", [[], pytest.param([*RUNTIMES], marks=pytest.mark.slow)])
@pytest.mark.parametrize(("part", "hparams", "outputs"), PARTS)
def test_every_part_has_the_outputs_of_its_head(part, hparams, outputs: set[str], kinds, tmp_path: Path) -> None:
    model = support.with_crc_weights(**hparams)
    made = exportable.make_exportable_network(model, part)
    assert made.run(dict(zip(exportable.INPUTS, self_check.fixed_inputs(model), strict=True))).keys() == outputs
    for kind in kinds:
        assert _check(kind, model, made, tmp_path).keys() == outputs


@pytest.mark.parametrize("positions", [64, 1024])
def test_texts_are_cut_where_positions_end_and_at_512_tokens_at_the_latest(positions: int, tmp_path: Path) -> None:
    model = support.with_crc_weights({"max_position_embeddings": positions})
    made = exportable.make_exportable_network(model, "body")
    writes_nothing = onnx.RUNTIME._replace(write=lambda made, path: None, load=lambda path: (made.run, []))
    exportable.write_network(tmp_path, model, made, writes_nothing)
    assert json.loads((tmp_path / "model.json").read_text())["max_length"] == min(positions, 512)
    assert model.max_length == min(positions, 512)  # which the tokenizer in a SavedModel has, too


def test_a_part_that_is_not_there_is_refused() -> None:
    for hparams, reason in (
        ({"electra_objective": False}, "no generator of its own"),
        ({"electra_objective": False, "electric_objective": True}, "two towers"),
    ):
        with pytest.raises(UserError, match=reason):
            exportable.make_exportable_network(support.with_crc_weights(**hparams), "generator")


_INNER = dense(128, "inner") | dense(3)
_SPANS = support.SPANS | dense(1, "answerable")
_JOINT = _SPANS | dense(512, "end_hidden", "answerable_hidden", inputs=256) | dense(1, "end", "answerable", inputs=512)
_LABELS = {"labels": ["contradiction", "entailment", "neutral"]}
_TAGS, _TRUTH = {"labels": ["DT", "NN", "VB"]}, {"labels": ["false", "true"]}
_Heads = dict[str, tuple[dict[str, Any], dict[str, tuple[dict[str, list[int]], dict[str, Any]]]]]
# Models: hparams, and for each task the shapes of its head and its state.
HEADS: _Heads = {
    "linear, joint": (
        {"joint_prediction": True, "beam_size": 4},
        {"mnli": (dense(3), _LABELS), "pos": (dense(3), _TAGS), "squad": (_JOINT, {})},
    ),
    "marked": ({}, {"wic": (dense(2, "spans", inputs=384), _TRUTH)}),
    "choices": ({}, {"race": (dense(1, "choice"), {})}),
    "projection": (
        {"classifier_pooling": "mean", "embedding_projection": 16},
        {"sentence_embedding": (dense(16, "projection"), {})},
    ),
}
_SMALLEST = "projection"
# The heads above in other tasks and settings.
FURTHER: _Heads = {
    "gelu, independent": (
        {"classifier": "gelu", "joint_prediction": False, "answerable_uses_start_logits": False},
        {"mnli": (_INNER, _LABELS), "squad": (_SPANS, {})},
    ),
    "without joint prediction, without the answerable classifier": (
        {"joint_prediction": False, "answerable_classifier": False},
        {"squad": (support.SPANS, {})},
    ),
    "tanh of the mean": ({"classifier": "tanh", "classifier_pooling": "mean"}, {"mnli": (_INNER, _LABELS)}),
    "short windows": ({"max_seq_length": 16}, {"pos": (dense(3), _TAGS)}),
    "plain": (
        {},
        {
            "sst": (dense(2), {"labels": ["0", "1"]}),
            "sts": (dense(1), {}),
            "multirc": (dense(2), {}),
            "copa": (dense(1, "choice"), {}),
            "wsc": (dense(2, "spans", inputs=384), _TRUTH),
            "sentence_embedding": ({}, {}),
        },
    ),
}
_LONG, _PAIR = "the man " * 50, {"text1": "of", "text2": "the man"}
_NLI = [{"sentence1": "the man went to the house", "sentence2": "Some OTHER text, with Café."}]
_NLI += [{"sentence1": "of", "sentence2": "the man"}, {"sentence1": "the house of " * 60, "sentence2": "he went"}]
_QUESTIONS = [{"question": "the man ?", "context": "went to the house of ."}, {"question": "of ?", "context": _LONG}]
_RACE = {"article": "the man of the house", "question": "he went _ .", "options": ["of", "to", "a", "the house"]}
_ANSWERS = [{"text": "the man"}, {"text": "of"}, {"text": "house"}]
_MULTIRC = {"passage": {"text": "the man went", "questions": [{"question": "who?", "answers": _ANSWERS}]}}
_TARGET = {"span1_index": 0, "span1_text": "the man", "span2_index": 2, "span2_text": "of"}
# By the names of tasks, rows that they answer.
ROWS: dict[str, list[dict[str, Any]]] = {
    "mnli": _NLI,
    "sts": _NLI,
    "sst": [{"sentence": "the man went to the house"}, {"sentence": _LONG}],
    "pos": [{"text": "the man went to the house"}, {"text": _LONG}, {"words": ["of"]}],
    "squad": _QUESTIONS,
    "race": [_RACE, _RACE | {"article": _LONG}],
    "copa": [{"premise": "the man went", "question": "cause", "choice1": "of", "choice2": "the house"}],
    "multirc": [_MULTIRC],
    "wic": [{"sentence1": "the man went", "sentence2": "of the man", "start1": 4, "end1": 7, "start2": 7, "end2": 10}],
    "wsc": [{"text": "the man of the house", "target": _TARGET}],
}


def _models() -> list[Any]:
    """Hparams and tasks: the model with the smallest head; slow, the other models and one for each head.

    tests/finetune/test_every_task.py asks the same of a trained model of every kind of task.
    """
    slow = [pytest.param(*model, id=name, marks=pytest.mark.slow) for name, model in HEADS.items() if name != _SMALLEST]
    for name, (hparams, tasks) in (HEADS | FURTHER).items():
        for task, head in tasks.items():
            slow.append(pytest.param(hparams, {task: head}, id=f"{task}, {name}", marks=pytest.mark.slow))
    return [pytest.param(*HEADS[_SMALLEST], id=_SMALLEST), *slow]


@pytest.mark.parametrize(("hparams", "tasks"), _models())
def test_every_fine_tuned_head_gives_the_tasks_own_answers(hparams, tasks, tmp_path) -> None:
    """On texts with padding, pairs and long ones. A SavedModel is of ids where it does not take strings."""
    model = support.fine_tuned_together(tasks, max_query_length=16, doc_stride=32, **hparams)
    predictor = Predictor(model, model.tokenizer())
    if "sentence_embedding" in tasks:
        made = exportable.make_exportable(model, "main")
    else:
        made = exportable.make_exportable_heads(predictor, self_check.fixed_inputs(model))
    runs = {}
    for kind, runtime in RUNTIMES.items():
        written = exportable.write_network(tmp_path, model, made, runtime)
        assert written.difference < 1e-5, (kind, written)
        runs[kind] = runtime.load(tmp_path / runtime.file)[0]
    for number, task in enumerate(tasks):
        for kind, run in runs.items() if task in ROWS else ():
            ours = exports.answers_of(predictor, number, ROWS[task], made)
            theirs = exports.answers_of(predictor, number, ROWS[task], made, run)
            assert exports.largest_difference(ours, theirs) < 1e-5, (task, kind)
    for variable in made.variables:  # a check that compares nothing would pass, too
        variable.assign_add(tf.random.stateless_normal(variable.shape, [1, 2]))
    for run in runs.values():
        differences = {}
        for output, difference in made.differences(run).items():
            is_constant = output.endswith("answerable_logit") and not predictor.config.answerable_classifier
            if not output.endswith("_index") and not is_constant:  # ids may stay the same
                differences[output] = difference
        assert differences and min(differences.values()) > 1e-4, differences


def test_ids_that_are_exchanged_are_a_difference() -> None:
    """With the scores as they are: places of answers."""
    hparams, tasks = HEADS["linear, joint"]
    model = support.fine_tuned_together({"squad": tasks["squad"]}, max_query_length=16, doc_stride=32, **hparams)
    made = exportable.make_exportable(model, "main")
    assert set(made.differences(made.run).values()) == {0.0}

    def exchanged(inputs: Any) -> dict[str, np.ndarray]:
        outputs = made.run(inputs)
        for name, value in outputs.items():
            if value.dtype.kind == "i":
                outputs[name] = (value + 1) % 3
        return outputs

    differences = made.differences(exchanged)
    wrong = {name for name, difference in differences.items() if difference > self_check.TOLERANCE}
    assert wrong == {name for name in differences if name.endswith("_index")} != set()


def test_ids_of_equal_probability_may_be_exchanged() -> None:
    """The third may be as probable as what is not listed; the first of two, with less than a half, as the second."""
    listed = np.log([[0.5, 0.2, 0.15], [0.3, 0.3, 0.3], [0.6, 0.3, 0.099]])
    expected = [[True, True, False], [False, False, False], [True, True, True]]
    assert self_check.certain_ranks(listed).tolist() == expected
    assert self_check.certain_ranks(np.log([[0.51], [0.49]])).tolist() == [[True], [False]]


_STRANGER = """
import json, sys
import numpy as np, onnxruntime
from tokenizers import Tokenizer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
encoded = tokenizer.encode_batch(texts)
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", providers=["CPUExecutionProvider"])
inputs = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
given = {name: np.array([getattr(one, of) for one in encoded]) for name, of in inputs.items()}
states, logits = session.run(["last_hidden_state", "logits"], given)
np.savez(sys.argv[3], states=states, logits=logits)
assert "tensorflow" not in sys.modules and "electra_tf2" not in sys.modules
"""


def test_the_folder_is_all_that_is_needed_to_use_it(tmp_path: Path) -> None:
    words = ["--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/o", "--format", "onnx"]
    done = run_program("convert_model.py", *words)
    assert done.returncode == 0, done.stderr
    texts = ["the man went to the house", "Some OTHER text, with Café.", "of"]
    command = [sys.executable, "-c", _STRANGER, f"{tmp_path}/o", json.dumps(texts), f"{tmp_path}/found.npz"]
    subprocess.run(command, check=True, cwd=tmp_path)
    card = (tmp_path / "o" / "README.md").read_text(encoding="utf-8")
    assert "library_name: onnx" in card and "- outputs: `last_hidden_state`, `logits`" in card
    assert "- `model.onnx`, a file for ONNX Runtime: converted from" in card
    model = electra.load(str(golden.CHECKPOINT))
    for line, word in zip(
        exports.printed_by_card(tmp_path / "o")[1:], model.replaced(tag_programs.EXAMPLE_TEXT), strict=False
    ):
        assert float(line.rsplit(" ", 1)[1]) == pytest.approx(word.probability, abs=1e-4)
    with np.load(tmp_path / "found.npz") as found:
        for row, states in enumerate(model.states(texts)):
            length = len(states.tokens)
            np.testing.assert_allclose(found["states"][row, :length], states.vectors, atol=1e-5)
            expected = [one.probability for one in model.replaced(texts[row])]
            logits = found["logits"][row, 1 : length - 1]
            np.testing.assert_allclose(1 / (1 + np.exp(-logits)), expected, atol=1e-5)


# Programs of cards.

_SPAN_LABELS = ["B-PER", "E-PER", "I-PER", "O", "S-PER", "B-ORG", "E-ORG", "I-ORG", "S-ORG"]
_INDEPENDENT = {"joint_prediction": False, "answerable_classifier": False}
_WORDS = tag_programs.EXAMPLE_WORDS.split()
_ASKED = {"question": card_programs.EXAMPLE_QUESTION, "context": card_programs.EXAMPLE_CONTEXT}
_TEXT, _HOUSE = tag_programs.EXAMPLE_TEXT, "He owns a house."
_WIC_ROW: dict[str, Any] = {"sentence1": _TEXT, "sentence2": "A house stands there."}
_WIC_ROW |= {"start1": 21, "end1": 26, "start2": 2, "end2": 7}
# Name -> hparams, task, its head and state, and the row that the program answers.
CARDS: dict[str, tuple[dict[str, Any], str, dict[str, list[int]], dict[str, Any], Any]] = {
    "spans of words": ({}, "ner", dense(9), {"labels": _SPAN_LABELS, "encoding": "BIO"}, {"words": _WORDS}),
    "answers": (HEADS["linear, joint"][0], "squad", _JOINT, {}, _ASKED),
    "spans in texts": (
        {}, "ner", dense(9), {"labels": _SPAN_LABELS, "encoding": "BIO", "splits_at_signs": True}, {"text": _TEXT},
    ),
    "spans, BIOES": ({}, "ner", dense(5), {"labels": _SPAN_LABELS[:5], "encoding": "BIOES"}, {"words": _WORDS}),
    "words": ({}, "pos", dense(3), _TAGS, {"words": _WORDS}),
    "independent answers": (_INDEPENDENT, "squad", support.SPANS, {}, _ASKED),
    "no answer": (_INDEPENDENT | {"qa_na_threshold": -100.0}, "squad", support.SPANS, {"v2": True}, _ASKED),
    "no answer, by a classifier": (
        HEADS["linear, joint"][0] | {"qa_na_threshold": -100.0}, "squad", _JOINT, {"v2": True}, _ASKED,
    ),
    "pairs": ({}, "mnli", dense(3), _LABELS, {"sentence1": _TEXT, "sentence2": _HOUSE}),
    "texts": ({}, "sst", dense(2), {"labels": ["0", "1"]}, {"sentence": _TEXT}),
    "numbers": ({}, "sts", dense(1), {}, {"sentence1": _TEXT, "sentence2": _HOUSE}),
    "marked": ({}, "wic", *HEADS["marked"][1]["wic"], _WIC_ROW),
}  # fmt: skip
_QUICK_CARDS = ("spans of words", "answers")


def _cards() -> list[Any]:
    cases = []
    for name, card in CARDS.items():
        marks = () if name in _QUICK_CARDS else pytest.mark.slow
        cases.append(pytest.param(*card, id=name, marks=marks))
    return cases


def _as_printed(answer: dict[str, Any], of_text: bool) -> list[list[Any]]:
    """What a card's program prints of an answer at the end of each line: words, and a number."""
    if "tags" in answer:
        lines = [list(row) for row in zip(answer["words"], answer["tags"], answer["probabilities"], strict=True)]
        if of_text:
            for span in answer["entities"]:
                lines.append([str(span["start"]), str(span["end"]), span["type"], *span["text"].split()])
        return lines
    if "prediction_text" in answer:
        return [["answer:", *answer["prediction_text"].split()]]
    if "probabilities" in answer:
        return [[answer["label"], answer["probabilities"][answer["label"]]]]
    return [[answer["label"]]]


@pytest.mark.parametrize(("hparams", "task", "head", "state", "row"), _cards())
def test_the_cards_program_prints_the_answers_of_predict(hparams, task, head, state, row, tmp_path: Path) -> None:
    model = support.fine_tuned(task, head, state, max_query_length=16, **hparams)
    exportable.write_network(tmp_path, model, exportable.make_exportable(model, "main"), onnx.RUNTIME)
    (answer,) = Predictor(model, model.tokenizer())([row], task)
    printed = exports.printed_by_card(tmp_path)
    lines = _as_printed(answer, "splits_at_signs" in state)
    for line, expected in zip(printed, lines, strict=task in ("ner", "pos", "squad")):
        values = line.split()[-len(expected) :]
        if isinstance(expected[-1], float):
            assert float(values.pop()) == pytest.approx(expected.pop(), abs=1e-4)
        assert values == expected


@pytest.mark.parametrize("may_lack_answer", [True, False])
def test_a_program_finds_what_decides_about_answers_in_model_json(may_lack_answer: bool) -> None:
    hparams = HEADS["linear, joint"][0] | {"qa_na_threshold": 0.5, "max_answer_length": 7}
    tasks = {"mine": {"type": "qa"}}
    model = support.fine_tuned("mine", _JOINT, {"v2": may_lack_answer}, max_query_length=16, tasks=tasks, **hparams)
    described = exportable.make_exportable(model, "main").about["tasks"]["mine"]
    expected = {"kind": "qa", "v2": may_lack_answer, "max_answer_length": 7}
    if may_lack_answer:
        expected["qa_na_threshold"] = 0.5
    assert described == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*RUNTIMES])
@pytest.mark.parametrize("name", ["choices", "marked", "linear, joint", "plain"])
def test_the_programs_of_all_runtimes_answer_for_every_task(kind: str, name: str, tmp_path: Path) -> None:
    """Models of several tasks among them, and candidates, whose probabilities sum to 1."""
    hparams, tasks = (HEADS | FURTHER)[name]
    model = support.fine_tuned_together(tasks, max_query_length=16, doc_stride=32, **hparams)
    made = exportable.make_exportable_heads(Predictor(model, model.tokenizer()), self_check.fixed_inputs(model))
    exportable.write_network(tmp_path, model, made, RUNTIMES[kind])
    printed = exports.printed_by_card(tmp_path)
    assert len(printed) >= len(tasks)
    if name == "choices":
        shares = [float(line.rsplit(" ", 1)[1]) for line in printed]
        assert len(shares) == 4 and sum(shares) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "hparams"), [("generator", {}), ("body", {}), ("main", {"electra_objective": False})])
def test_the_programs_of_pre_trained_networks_print_tokens_and_numbers(part, hparams, tmp_path: Path) -> None:
    model = support.with_crc_weights(**hparams)
    exportable.write_network(tmp_path, model, exportable.make_exportable(model, part), onnx.RUNTIME)
    printed = [float(line.rsplit(" ", 1)[-1]) for line in exports.printed_by_card(tmp_path)]
    assert len(printed) == (1 if part == "body" else 5) and all(-1.001 < number < 1.001 for number in printed)


def test_what_a_runtime_has_no_operations_for_is_refused_with_a_format_that_has(tmp_path: Path) -> None:
    def factor(inputs):
        numbers = tf.cast(inputs["input_ids"], tf.float32)
        return {"logits": tf.linalg.cholesky(tf.matmul(numbers, numbers, transpose_b=True))}

    made = exportable.make_exportable_network(support.tiny(), "body")._replace(function=factor, variables=[])
    for kind, message in (
        ("tflite", r"LiteRT cannot hold this network \(.*\): --format onnx can"),
        ("onnx", r"ONNX cannot hold this network \(.*\): --format saved_model can"),
    ):
        with pytest.raises(UserError, match=message):
            RUNTIMES[kind].write(made, tmp_path / kind)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "onnx", "--dtype", "bfloat16"], "onnx stores float32"),
        (["--format", "saved_model", "--part", "body"], "offers no choice of a part"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    done = run_program("convert_model.py", "--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/x", *words)
    assert done.returncode and message in done.stderr


# From Python.


def test_python_converts_as_the_command_does(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    done = run_program(
        "convert_model.py", "--from", str(golden.CHECKPOINT), "--to", f"{tmp_path}/command", "--format", "huggingface"
    )
    assert done.returncode == 0, done.stderr
    model = electra.load(golden.CHECKPOINT)
    sources: list[Any] = [model, golden.CHECKPOINT, str(golden.CHECKPOINT)]
    for number, source in enumerate(sources):
        folder = electra.convert(source, tmp_path / str(number), "huggingface")
        assert capsys.readouterr().out.splitlines()[-1] == done.stdout.splitlines()[-1]
        for file in (tmp_path / "command").iterdir():
            assert (folder / file.name).read_bytes() == file.read_bytes()
    text = "the man went to the house"
    again = electra.load(electra.convert(model, tmp_path / "ours"))
    assert again.replaced(text) == model.replaced(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "hugginface"}, "^convert: format: 'hugginface' is none of .*; did you mean 'huggingface'"),
        ({"dtype": "float8"}, "^convert: dtype: 'float8' is none of float32, bfloat16, float16"),
        ({"format": "onnx", "dtype": "bfloat16"}, '^convert: dtype="bfloat16": onnx stores float32$'),
        ({"format": "onnx", "part": "head"}, '^convert: part="head": format="onnx" offers part main, generator, body$'),
        ({"to": "."}, "^convert: to: . is not empty: give another folder, or overwrite=True to write into it$"),
        ({"model": "electra_min"}, "^convert: no model at electra_min; did you mean 'electra_mini'"),
        ({"model": 3}, "^convert: model is a model, or the path or name of one, not 3$"),
        ({"to": "file", "overwrite": True}, "^convert: to: file is a file, but must be a folder$"),
        ({"to": None}, "^convert: to is the folder to write, not None$"),
        ({"format": ["onnx"]}, r"^convert: format: \['onnx'\] is none of"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    arguments: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"model": golden.CHECKPOINT, "to": "new"} | arguments
    with pytest.raises(UserError, match=message):
        electra.convert(**given)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# The measure of self-checks.


@pytest.mark.parametrize(("size", "expected"), [(20.0, 1e-6), (1.0, 2e-5), (0.1, 2e-5)])
def test_differences_are_shares_of_the_largest_value_where_that_is_above_1(size: float, expected: float) -> None:
    """Float32 rounds in proportion: 2e-5 is nothing beside logits of 20, and a fault beside states of 1."""
    rows = Encoded(*(np.ones([1, 2], np.int32) for _ in range(3)))
    ours = {"logits": np.array([[[size, 0.0], [0.0, -size]]])}
    theirs = {"logits": ours["logits"] + [[[0.0, 2e-5], [0.0, 0.0]]]}
    assert self_check.largest_at_tokens(ours, theirs, rows) == pytest.approx(expected)


def test_what_is_beyond_a_rows_end_does_not_count() -> None:
    rows = Encoded(np.ones([1, 2], np.int32), np.array([[1, 0]], np.int32), np.zeros([1, 2], np.int32))
    ours = {"states": np.zeros([1, 2, 3])}
    assert self_check.largest_at_tokens(ours, {"states": np.array([[[0.0] * 3, [9.0] * 3]])}, rows) == 0.0
    assert self_check.largest_at_tokens(ours, {"states": np.array([[[0.5] * 3, [9.0] * 3]])}, rows) == 0.5
