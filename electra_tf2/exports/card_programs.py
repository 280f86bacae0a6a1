"""Programs that run an exported network without our code, as text for its card: they print answers, not arrays.

A program has a start, which loads the tokenizer and the file and defines `outputs_of`, and a section for each task (or
one for a pre-trained network), which encodes an example and prints the answer that `electra predict` gives for it.
exports.transformers_programs has those for transformers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exports.tag_programs import EXAMPLE_TEXT, imports_of_words, lines_of_tags, lines_of_words
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model_config import config_of
from electra_tf2.settings.described import settings_of

FOLDER = "path/of/this/folder"  # stands in a card's programs; the user replaces it
DETECTOR_LOGITS = "positive where a token looks replaced"
LANGUAGE_MODEL_LOGITS = "of the masked language model, one for each token of the vocabulary"
EXAMPLE_QUESTION = "Who lives in Paris?"
EXAMPLE_CONTEXT = "Anna lives in Paris with her dog."


class Section(NamedTuple):
    """The part of a program that answers one example.

    text: its lines. rows: inputs that it gives to `outputs_of`. imports: lines of imports that it needs.
    changes_tokenizer: whether it cuts texts in another way, and so must stand behind the others.
    """

    text: str
    rows: int = 1
    imports: str = ""
    changes_tokenizer: bool = False


class Program(NamedTuple):
    """A program that runs a network, without what depends on the runtime.

    pad_id: id of the padding. rows_together: rows that the network reads as one example, the candidates of a question.
    marks: inputs that mark tokens of the text.
    """

    pad_id: int
    rows_together: int
    marks: Sequence[str]
    sections: Sequence[Section]


def program_of(model: StoredModel, about: Mapping[str, Any], rows_together: int, marks: Sequence[str]) -> Program:
    """Makes the program of a folder whose model.json holds `about`."""
    sections = []
    config = config_of(model)
    if "tasks" in about:
        assert isinstance(config, FinetuningConfig)
        for task in about["tasks"]:
            sections.append(_task_section(task, about, config, rows_together))
        sections.sort(key=lambda section: section.changes_tokenizer)
    else:
        sections.append(_network_section(model, about))
    return Program(model.tokenizer().special.pad, rows_together, marks, sections)


def texts_of_task(config: FinetuningConfig, task: str) -> int:
    """The number of texts that a classifier or a regression reads."""
    settings = settings_of(task, config.tasks).text
    return 1 if settings is None else len(settings.texts)


# Programs of runtimes.


def onnx_usage(file: str, program: Program) -> str:
    """Shows how ONNX Runtime runs a file."""
    load = f'session = onnxruntime.InferenceSession(f"{{folder}}/{file}")'
    run = """    names = [entry.name for entry in session.get_outputs()]
    taken = {entry.name: inputs[entry.name] for entry in session.get_inputs()}
    return dict(zip(names, session.run(names, taken)))"""
    return _program("import onnxruntime", load, run, "int64", program)


def litert_usage(file: str, program: Program) -> str:
    """Shows how LiteRT runs a file."""
    load = f'run = Interpreter(model_path=f"{{folder}}/{file}").get_signature_runner()'
    run = "    return run(**inputs)"
    return _program("from ai_edge_litert.interpreter import Interpreter", load, run, "int32", program)


def saved_model_usage(folder: str, program: Program) -> str:
    """Shows how TensorFlow runs a SavedModel of ids."""
    load = f'model = tf.saved_model.load(f"{{folder}}/{folder}")'
    run = """    tensors = {name: tf.constant(value) for name, value in inputs.items()}
    outputs = model.signatures["serving_default"](**tensors)
    return {name: value.numpy() for name, value in outputs.items()}"""
    return _program("import tensorflow as tf", load, run, "int32", program)


def _program(import_line: str, load: str, run: str, integer_type: str, program: Program) -> str:
    """Puts a program together.

    Args:
      load: the line that loads the file. run: the lines of `outputs_of` that run it on `inputs`.
    """
    imports = ["import json"]
    for section in program.sections:
        if section.imports and section.imports not in imports:
            imports.append(section.imports)
    further = ""
    has_other_numbers = any(section.rows % program.rows_together for section in program.sections)
    if has_other_numbers:
        further = f"    rows = rows * {program.rows_together}  # the model reads {program.rows_together} together\n"
    marks = ""
    for name in program.marks:
        marks += f"""    inputs["{name}"] = np.zeros_like(inputs["input_ids"])
    inputs["{name}"][:] = marks.get("{name}", 0)
"""
    arguments = "rows, **marks" if program.marks else "rows"
    import_lines = "\n".join(imports)
    sections = "\n\n".join(section.text.strip() for section in program.sections)
    return f"""
{import_lines}

import numpy as np
{import_line}
from tokenizers import Tokenizer

folder = "{FOLDER}"
with open(f"{{folder}}/model.json", encoding="utf-8") as file:
    about = json.load(file)
tokenizer = Tokenizer.from_file(f"{{folder}}/tokenizer.json")
tokenizer.enable_truncation(about["max_length"])  # tokens that the model reads; longer texts are cut
tokenizer.enable_padding(pad_id={program.pad_id})
{load}


def outputs_of({arguments}):
    # Name of an output -> array, for texts that the tokenizer encoded.
{further}    inputs = {{
        "input_ids": np.array([row.ids for row in rows], np.{integer_type}),
        "attention_mask": np.array([row.attention_mask for row in rows], np.{integer_type}),
        "token_type_ids": np.array([row.type_ids for row in rows], np.{integer_type}),
    }}
{marks}{run}


{sections}
"""


# Sections of pre-trained networks and of vectors.


def _network_section(model: StoredModel, about: Mapping[str, Any]) -> Section:
    if about.get("logits") == DETECTOR_LOGITS:
        return Section(f"""
# The probability that another token stood here.
row = tokenizer.encode("{EXAMPLE_TEXT}")
logits = outputs_of([row])["logits"][0]
for token, logit in zip(row.tokens, logits):
    print(token, 1 / (1 + np.exp(-logit)))
""")
    if "logits" in about:
        special = model.tokenizer().special
        return Section(f"""
# The likeliest tokens in the place of {model.tokens[special.mask]}, with their probabilities.
row = tokenizer.encode("The old man bought a {model.tokens[special.mask]}.")
logits = outputs_of([row])["logits"][0, row.ids.index({special.mask})]
probabilities = np.exp(logits - logits.max())
probabilities /= probabilities.sum()
for token_id in np.argsort(-probabilities)[:5].tolist():
    print(tokenizer.id_to_token(token_id), probabilities[token_id])
""")
    return _vectors("sentence_embedding")


def _vectors(output: str) -> Section:
    text = f"""
# How alike texts are: 1 for the same, since vectors have length 1.
texts = ["{EXAMPLE_TEXT}", "An elderly man got a home."]
vectors = outputs_of(tokenizer.encode_batch(texts))["{output}"]
print(vectors[0] @ vectors[1])
"""
    return Section(text, rows=2)


# Sections of tasks.


def _task_section(task: str, about: Mapping[str, Any], config: FinetuningConfig, rows_together: int) -> Section:
    """Makes the section of a task, which its outputs tell."""
    state = about["tasks"][task]
    outputs = {name.removeprefix(f"{task}.") for name in about["outputs"] if name.startswith(f"{task}.")}
    if state["kind"] == "tagging":
        return _tags(task, state)
    if {"start_top_index", "start_logits"} & outputs:
        return _answer(task, state, config)
    if "log_probs" in outputs:
        return _choice(task, rows_together)
    if "value" in outputs:
        return _number(task, texts_of_task(config, task))
    if "embedding" in outputs:
        return _vectors(f"{task}.embedding")
    if state["kind"] == "choice":
        return _right_or_wrong(task)
    if "logits" not in outputs or "labels" not in state:  # a task in Python, whose outputs it alone knows
        return Section(f"""
# {task}: the outputs of its head.
row = tokenizer.encode("{EXAMPLE_TEXT}")
for name, value in outputs_of([row]).items():
    print(name, value)
""")
    if state["kind"] == "spans":
        return _marked(task, texts_of_task(config, task))
    return _label(task, texts_of_task(config, task))


def _examples(texts: int) -> str:
    """Two examples of one text or of two, as a list in a program."""
    if texts == 1:
        return f'["{EXAMPLE_TEXT}", "And another text."]'
    return f'[("{EXAMPLE_TEXT}", "He owns a house."), ("One text.", "And another one.")]'


_PRINTED_LABEL = """    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    best = probabilities.argmax()
    print(text, labels[best], probabilities[best])"""


def _label(task: str, texts: int) -> Section:
    what = "a text" if texts == 1 else "a pair of texts"
    text = f"""
# {task}: the label of {what}, with its probability.
texts = {_examples(texts)}
labels = about["tasks"]["{task}"]["labels"]
all_logits = outputs_of(tokenizer.encode_batch(texts))["{task}.logits"]
for text, logits in zip(texts, all_logits):
{_PRINTED_LABEL}
"""
    return Section(text, rows=2)


def _number(task: str, texts: int) -> Section:
    what = "a text" if texts == 1 else "a pair of texts"
    text = f"""
# {task}: a number for {what}, on the scale of the training data.
texts = {_examples(texts)}
numbers = outputs_of(tokenizer.encode_batch(texts))["{task}.value"]
for text, number in zip(texts, numbers):
    print(text, number)
"""
    return Section(text, rows=2)


def _marked(task: str, texts: int) -> Section:
    """Makes the section of a task of two marked parts, one in each text or both in the only one."""
    values = f'["{EXAMPLE_TEXT}", "A house stands there."]'
    parts = '[(0, "house"), (1, "house")]'
    if texts == 1:
        values = f'["{EXAMPLE_TEXT}"]'
        parts = '[(0, "The old man"), (0, "house")]'
    return Section(f"""
# {task}: the label of two marked parts of the texts, with its probability.
text = {values}
parts = {parts}  # the number of a text, and words in it
labels = about["tasks"]["{task}"]["labels"]
row = tokenizer.encode(*text)
marks = []
for number, part in parts:
    start = text[number].index(part)
    end = start + len(part)
    mark = []  # 1 at the tokens of the part, else 0
    for sequence, (first, behind) in zip(row.sequence_ids, row.offsets):
        mark.append(int(sequence == number and first < end and behind > start))
    marks.append(mark)
all_logits = outputs_of([row], span_1=marks[0], span_2=marks[1])["{task}.logits"]
for logits in all_logits[:1]:
{_PRINTED_LABEL}
""")


def _choice(task: str, rows_together: int) -> Section:
    lines = [f"# {task}: the probability of each candidate to be the right one.", "candidates = ["]
    for number in range(1, rows_together + 1):
        lines.append(f'    ("A text and a question?", "Answer {number}."),')
    lines += [
        "]",
        f'log_probabilities = outputs_of(tokenizer.encode_batch(candidates))["{task}.log_probs"]',
        "for (_, candidate), log_probability in zip(candidates, log_probabilities):",
        "    print(candidate, np.exp(log_probability))",
    ]
    return Section("\n".join(lines), rows=rows_together)


def _right_or_wrong(task: str) -> Section:
    text = f"""
# {task}: the probability that an answer is right.
answers = [("A text and a question?", "Answer 1."), ("A text and a question?", "Answer 2.")]
all_logits = outputs_of(tokenizer.encode_batch(answers))["{task}.logits"]
for (_, answer), (wrong, right) in zip(answers, all_logits):
    print(answer, 1 / (1 + np.exp(wrong - right)))
"""
    return Section(text, rows=2)


def _tags(task: str, state: Mapping[str, Any]) -> Section:
    text = f"""
# {task}: the tag of each word, with its probability.
{lines_of_words(state)}
labels = about["tasks"]["{task}"]["labels"]
row = tokenizer.encode(" ".join(words))
logits = outputs_of([row])["{task}.logits"][0]
read = []  # numbers of the words that the network reads
scores = []  # of each of them, the logarithms of its labels' probabilities
place = 0  # of the word among the characters of the joined words
for number, word in enumerate(words):
    token = row.char_to_token(place)  # its first one, which has the word's label
    place += len(word) + 1
    if token is None:
        print("not read:", word)  # it has no token, or the text is too long: give it in parts
        continue
    read.append(number)
    scores.append(logits[token] - np.logaddexp.reduce(logits[token]))
{lines_of_tags(state)}"""
    return Section(text, imports=imports_of_words(state))


def _answer(task: str, state: Mapping[str, Any], config: FinetuningConfig) -> Section:
    if config.joint_prediction:
        scores = f"""starts = outputs["{task}.start_top_index"][0]  # the likeliest first tokens of an answer
start_scores = outputs["{task}.start_top_log_probs"][0]
ends = outputs["{task}.end_top_index"][0]  # for each of them the likeliest last tokens
end_scores = outputs["{task}.end_top_log_probs"][0]"""
        loops = """for start, start_score, its_ends, its_scores in zip(starts, start_scores, ends, end_scores):
    for end, end_score in zip(its_ends, its_scores):"""
        null_score = "-best"
    else:
        scores = f"""start_scores = outputs["{task}.start_logits"][0]
end_scores = outputs["{task}.end_logits"][0]"""
        loops = """for start, start_score in enumerate(start_scores):
    for end, end_score in enumerate(end_scores):"""
        null_score = "start_scores[0] + end_scores[0] - best"
    if config.answerable_classifier:
        null_score = f'outputs["{task}.answerable_logit"][0]'
    no_answer = ""
    if state.get("v2"):
        no_answer = f"""if {null_score} > {config.qa_na_threshold:g}:
    answer = ""  # the context has no answer
"""
    text = f"""
# {task}: the answer, a part of the context.
question = "{EXAMPLE_QUESTION}"
context = "{EXAMPLE_CONTEXT}"
tokenizer.enable_truncation(about["max_length"], strategy="only_second")  # cuts a long context, see above
row = tokenizer.encode(question, context)
outputs = outputs_of([row])
{scores}
best = -np.inf
answer = ""
{loops}
        in_context = row.sequence_ids[start] == 1 and row.sequence_ids[end] == 1
        score = start_score + end_score
        if in_context and start <= end < start + {config.max_answer_length} and score > best:
            best = score
            answer = context[row.offsets[start][0] : row.offsets[end][1]].strip()
{no_answer}print("answer:", answer)
"""
    return Section(text, changes_tokenizer=True)


# What the outputs mean, as lines of a card.


def explained_outputs(model: StoredModel, about: Mapping[str, Any]) -> list[str]:
    """Says of outputs that do not explain themselves what they mean."""
    config = config_of(model)
    lines = []
    for task, state in about.get("tasks", {}).items():
        outputs = {name for name in about["outputs"] if name.startswith(f"{task}.")}
        if state["kind"] == "tagging":
            lines.append(
                f"- `{task}.logits` [batch, length, labels]: of every token; their softmax is the probabilities of the "
                "labels in model.json; a word's are those of its first token"
            )
            if "encoding" in state:
                lines.append(_explained_encoding(state["encoding"]))
        if f"{task}.start_top_index" in outputs or f"{task}.start_logits" in outputs:
            assert isinstance(config, FinetuningConfig)
            lines += _explained_answers(task, outputs, bool(state.get("v2")), config)
    return lines


def _explained_encoding(encoding: str) -> str:
    line = f"- `encoding` in model.json: the training file had {encoding}"
    if encoding == "BIOES":
        return f"{line}, as the labels have"
    return (
        f"{line}; the labels that were learned are BIOES (B first, I inside, E last word of a span, S a span of one "
        "word, O outside), and the program below turns them back"
    )


def _explained_answers(task: str, outputs: set[str], may_lack_answer: bool, config: FinetuningConfig) -> list[str]:
    if f"{task}.start_top_index" in outputs:
        lines = [
            f"- `{task}.start_top_index` [batch, K]: positions of the K likeliest first tokens of an answer, with "
            f"`{task}.start_top_log_probs`, the logarithms of their probabilities",
            f"- `{task}.end_top_index` [batch, K, K]: entry [b, i, j] is the position of the j-th likeliest last token "
            f"of an answer that begins at `start_top_index` [b, i], with `{task}.end_top_log_probs`",
        ]
    else:
        lines = [
            f"- `{task}.start_logits`, `{task}.end_logits` [batch, length]: scores of each token as the first and the "
            "last one of an answer"
        ]
    if not may_lack_answer:
        meaning = "without a meaning here, since all questions of the training data have an answer"
    elif config.answerable_classifier:
        meaning = f"above {config.qa_na_threshold:g} the context counts as having no answer"
    else:
        meaning = "always 0: this model was trained without a layer for it"
    room = f"at most {config.max_seq_length} tokens, question included"
    return [
        *lines,
        f"- `{task}.answerable_logit` [batch]: {meaning}",
        f"- a context that is longer than the input ({room}) must be given in overlapping windows, from which the "
        "answer with the best score counts (`electra predict` does so); the program below reads the first window",
    ]
