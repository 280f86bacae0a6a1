"""Programs that run a Hugging Face directory by transformers (5 and later), as text for its card.

Where a pipeline gives the answers of `electra predict`, a program calls it; else it calls the class.
"""

import json
from typing import Any

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.exports.card_programs import (
    EXAMPLE_CONTEXT,
    EXAMPLE_QUESTION,
    FOLDER,
    texts_of_task,
)
from electra_tf2.exports.tag_programs import EXAMPLE_TEXT, imports_of_words, lines_of_tags, lines_of_words
from electra_tf2.files.tables import names_of
from electra_tf2.finetune.tasks.targets import Scale, adopted, known_target
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.model_config import config_of, pooling_of
from electra_tf2.settings.described import settings_of


def transformers_usage(model: StoredModel, class_name: str) -> str:
    """Shows how transformers runs a model as a class."""
    config = config_of(model)
    if class_name.endswith("Model"):
        return _states(pooling_of(model))
    if class_name.endswith("ForMaskedLM"):
        mask = model.tokens[model.tokenizer().special.mask]
        return _pipeline("fill-mask", f'"A {mask} text."')
    if not isinstance(config, FinetuningConfig):
        return _detector(class_name)
    task = config.task_names[0]
    state = model.state_of(task)
    if class_name.endswith("ForQuestionAnswering"):
        return _answer(config, bool(state.get("v2")))
    if class_name.endswith("ForTokenClassification"):
        return _tags(state, bool(model.tokenizer_file), config.max_seq_length)
    texts = '"A text."'
    if texts_of_task(config, task) > 1:
        texts = '{"text": "A text.", "text_pair": "Another one."}'
    if "labels" in state:
        cut = f", truncation=True, max_length={config.max_seq_length}"
        return _pipeline("text-classification", texts, cut)
    return _number(model, task, config, texts_of_task(config, task))


def explained_program(model: StoredModel, class_name: str) -> list[str]:
    """Says why the program is as it is, and what it does not do, as paragraphs of a card."""
    config = config_of(model)
    if not isinstance(config, FinetuningConfig):
        return []
    state = model.state_of(config.task_names[0])
    if class_name.endswith("ForTokenClassification"):
        return _explained_tags(state, config)
    if class_name.endswith("ForQuestionAnswering"):
        return _explained_answers(config, bool(state.get("v2")))
    if class_name.endswith("ForSequenceClassification"):
        return _explained_pairs(config)
    return []


def _explained_pairs(config: FinetuningConfig) -> list[str]:
    """Says what the two texts of a pair are, and when they are cut otherwise than by `electra predict`."""
    settings = settings_of(config.task_names[0], config.tasks).text
    if settings is None or len(settings.texts) < 2:
        return []
    first, second = (names_of(column)[0] for column in settings.texts)
    return [
        f"`text` is what the training data had in the column `{first}`, `text_pair` that of `{second}`. Where both are "
        f"longer than half of the {config.max_seq_length} tokens, `electra predict` may leave the first a token more, "
        "and the second one less, than this tokenizer does; the answer then differs a little."
    ]


def explained_scores(model: StoredModel, class_name: str) -> str:
    """Says whose scores a card has where its program does not reach them; "": it has the same."""
    config = config_of(model)
    if not isinstance(config, FinetuningConfig):
        return ""
    state = model.state_of(config.task_names[0])
    if class_name.endswith("ForQuestionAnswering"):
        whose = "The scores of `electra predict`, which reads a long context in windows"
        decides_alike = not config.answerable_classifier or not state.get("v2")
        if decides_alike:
            return f"{whose}. The program above has the same where a context fits into the input."
        return (
            f"{whose} and decides by the layer that stayed behind whether there is an answer. **The program above "
            "decides that otherwise, and was not scored**: its scores differ most for questions without an answer "
            "(`NoAns`). A model trained with `--no-answerable-classifier` leaves whole, and has the scores of its card."
        )
    if class_name.endswith("ForTokenClassification") and "encoding" in state:
        return "The scores of `electra predict`, and of the program above for texts that fit into the input."
    return ""


def _pipeline(task: str, example: str, options: str = "") -> str:
    return f"""
from transformers import pipeline

run = pipeline("{task}", model="{FOLDER}"{options})
print(run({example}))
"""


def _loaded(class_name: str, imports: str = "") -> str:
    """The start of a program that calls a class. imports: lines before those of PyTorch."""
    return f"""
{imports}import torch
from transformers import AutoTokenizer, {class_name}

tokenizer = AutoTokenizer.from_pretrained("{FOLDER}")
model = {class_name}.from_pretrained("{FOLDER}")"""


def _states(pooling: str) -> str:
    vectors = "states[:, 0]"
    pooled = "the state of the first token"
    if pooling == "mean":
        vectors = "(states * mask).sum(1) / mask.sum(1)"
        pooled = "the mean of the states of its tokens"
    return f"""{_loaded("AutoModel")}
encoded = tokenizer(["{EXAMPLE_TEXT}", "An elderly man got a home."], padding=True, return_tensors="pt")
with torch.no_grad():
    states = model(**encoded).last_hidden_state
mask = encoded["attention_mask"].unsqueeze(-1)
vectors = {vectors}  # of each text, {pooled}
print("similarity:", torch.cosine_similarity(vectors[0], vectors[1], dim=0).item())
"""


def _detector(class_name: str) -> str:
    probabilities = "logits.sigmoid()"
    if class_name.endswith("ForTokenClassification"):
        probabilities = "logits.softmax(-1)[:, 1]"
    return f"""{_loaded(class_name)}
encoded = tokenizer("{EXAMPLE_TEXT}", return_tensors="pt")
with torch.no_grad():
    logits = model(**encoded).logits[0]
probabilities = {probabilities}  # that another token stood there
for token, probability in zip(encoded.tokens(), probabilities.tolist()):
    print(token, probability)
"""


def _number(model: StoredModel, task: str, config: FinetuningConfig, texts: int) -> str:
    low, high = _scale_of(model, task, config)
    example = '"A text."' if texts == 1 else '"A text.", "Another one."'
    return f"""{_loaded("AutoModelForSequenceClassification")}
encoded = tokenizer({example}, truncation=True, max_length={config.max_seq_length}, return_tensors="pt")
with torch.no_grad():
    share = model(**encoded).logits.item()  # 0 at the lower end of the scale, 1 at the upper
print({low:g} + {high - low:g} * share)
"""


def _scale_of(model: StoredModel, task: str, config: FinetuningConfig) -> tuple[float, float]:
    """Least and greatest number of a regression; 0 and 1 if nothing tells them."""
    settings = settings_of(task, config.tasks).text
    if settings is None:
        return 0.0, 1.0
    target = adopted(known_target(task, settings), model.state_of(task), task, settings)
    if isinstance(target, Scale):
        return target.low, target.high
    return 0.0, 1.0


def _tags(state: dict[str, Any], has_own_tokenizer: bool, max_length: int) -> str:
    """Reads words as in training. Tokenizers that are not WordPiece need the blanks between words."""
    encoding = f"tokenizer(words, is_split_into_words=True, truncation=True, max_length={max_length}"
    is_read = "number in encoded.word_ids()"
    token = "encoded.word_ids().index(number)"
    if has_own_tokenizer:
        encoding = f'tokenizer(" ".join(words), truncation=True, max_length={max_length}'
        start = 'len(" ".join([*words[:number], ""]))'
        is_read = f"encoded.char_to_token({start}) is not None"
        token = f"encoded.char_to_token({start})"
    imports = "import numpy as np\n"
    if imports_of_words(state):
        imports = f"{imports_of_words(state)}\n\n{imports}"
    return f"""{_loaded("AutoModelForTokenClassification", imports)}
{lines_of_words(state)}
labels = {json.dumps(state["labels"], ensure_ascii=False)}
encoded = {encoding}, return_tensors="pt")
with torch.no_grad():
    logits = np.array(model(**encoded).logits[0].tolist())
read = []  # numbers of the words that the network reads
scores = []  # of each of them, the logarithms of its labels' probabilities
for number, word in enumerate(words):
    if not ({is_read}):
        print("not read:", word)  # it has no token, or the text is too long: give it in parts
        continue
    token = {token}  # its first one
    read.append(number)
    scores.append(logits[token] - np.logaddexp.reduce(logits[token]))
{lines_of_tags(state)}"""


def _explained_tags(state: dict[str, Any], config: FinetuningConfig) -> list[str]:
    encoding = state.get("encoding")
    paragraphs = []
    if state.get("splits_at_signs"):
        paragraphs.append(
            "The model was trained on texts with marked spans, in which signs of punctuation are words. The program "
            "below gives the spans of `electra predict`. The token-classification pipeline of transformers "
            '(`aggregation_strategy="first"`) gives nearly the same: it joins spans of one type that stand side by '
            "side, takes each word's likeliest label by itself, and may miss a name with an emoji or another symbol "
            "at it."
        )
    else:
        paragraphs.append(
            "The model was trained on words between blanks, and a word has the label of its first token. The "
            "token-classification pipeline of transformers takes each part of `labor-management`, `n't` or `Corp.` for "
            "a word of its own, and gives other tags: use the program below instead."
        )
    if encoding:
        paragraphs.append(
            "The model learned BIOES. In config.json its labels are called B- and I- alone, by which pipelines group; "
            f"the program has their own names, and prints {encoding}, as the training file had."
        )
    if encoding and config.compat == "original":
        paragraphs.append(
            "`electra predict` takes each word's likeliest label (`compat original`); the program takes the likeliest "
            "whole spans, and may differ."
        )
    return paragraphs


def _answer(config: FinetuningConfig, may_lack_answer: bool) -> str:
    no_answer = ""
    if may_lack_answer:
        threshold = "0"
        if not config.answerable_classifier:
            threshold = f"{config.qa_na_threshold:g}"
        no_answer = f"""if starts[0] + ends[0] - best > {threshold}:  # the first token stands for no answer
    answer = ""
"""
    return f"""{_loaded("AutoModelForQuestionAnswering")}
question = "{EXAMPLE_QUESTION}"
context = "{EXAMPLE_CONTEXT}"
cut = {{"truncation": "only_second", "max_length": {config.max_seq_length}}}
encoded = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt", **cut)
offsets = encoded.pop("offset_mapping")[0].tolist()  # characters of each token
with torch.no_grad():
    output = model(**encoded)
starts = output.start_logits[0].tolist()
ends = output.end_logits[0].tolist()
in_context = [token for token, text in enumerate(encoded.sequence_ids(0)) if text == 1]
best = float("-inf")
answer = ""
for start in in_context:
    for end in in_context:
        if start <= end < start + {config.max_answer_length} and starts[start] + ends[end] > best:
            best = starts[start] + ends[end]
            answer = context[offsets[start][0] : offsets[end][1]].strip()
{no_answer}print("answer:", answer)
"""


def _explained_answers(config: FinetuningConfig, may_lack_answer: bool) -> list[str]:
    paragraphs = [
        "transformers 5 has no pipeline for questions any more; the program finds the likeliest answer itself. A "
        f"context that is longer than the input (at most {config.max_seq_length} tokens, question included) is cut: "
        "give it in overlapping windows (`return_overflowing_tokens=True`, `stride`), and take the answer with the "
        "best score of all."
    ]
    if may_lack_answer and config.answerable_classifier:
        paragraphs.append(
            "Questions may have no answer. `electra predict` decides that by a layer of its own, which does not leave "
            "with the model, since the class has no place for it. The program compares the best answer with the score "
            "of the first token instead, which stands for no answer: it may decide otherwise."
        )
    elif may_lack_answer:
        paragraphs.append(
            "Questions may have no answer: then the score of the first token, less that of the best answer, is above "
            f"{config.qa_na_threshold:g}. `electra predict` decides it in the same way."
        )
    return paragraphs
