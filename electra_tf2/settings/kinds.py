"""The kinds of tasks: one table, in which a kind is a row. Free of TensorFlow.

A row holds what must be known of a kind where its class is not loaded; all else that differs stands in the class.
"""

from collections.abc import Mapping
from typing import NamedTuple

Types = tuple[type, ...]  # that a value may have


class Kind(NamedTuple):
    """A kind of task.

    task: the class of finetune/tasks/ that reads, learns and scores it, "module:Class".
    keys: keys of a description in the hparam `tasks`, with their types; none: no description may name this kind.
    like: built-in task whose hparams a described task has by default; "": there is none.
    plain_texts: whether it reads one or two texts and nothing else. Only then can a prompt ask for its labels, and a
      SavedModel take strings.
    numeric: whether labels are numbers on a scale.
    embeds: whether it learns vectors of texts.
    transformers_class: end of the name of the class of transformers with the same head; "": there is none.
    outputs_name: end of the name of the folder for official scripts, as in the original.
    example, input: what an example is called in counts, and what an input of the network is, of which an example may
      have several.
    baseline: the constant answer whose scores stand beside the model's.
    """

    task: str
    keys: Mapping[str, Types] = {}
    like: str = ""
    plain_texts: bool = False
    numeric: bool = False
    embeds: bool = False
    transformers_class: str = ""
    outputs_name: str = "outputs"
    example: str = "example"
    input: str = "input"
    baseline: str = "the commonest label"

    def name_of_inputs(self, inputs: int, examples: int) -> str:
        """The noun for a number of inputs: that of examples where each has one."""
        return self.example if inputs == examples else self.input


FILE_KEYS: dict[str, Types] = {"files": (dict,), "held_out": (int, float)}
_TEXT_KEYS: dict[str, Types] = FILE_KEYS | {
    "text_columns": (list,),
    "label_column": (str, int),
    "metric": (str,),
    "header": (bool,),
    "double_unordered": (bool,),
    "delimiter": (str,),
    "quoted": (bool,),
}
KINDS: dict[str, Kind] = {
    "classification": Kind(
        "text:TextTask",
        keys=_TEXT_KEYS | {"labels": (list,)},
        plain_texts=True,
        transformers_class="SequenceClassification",
    ),
    "regression": Kind(
        "text:TextTask",
        keys=_TEXT_KEYS | {"min": (int, float), "max": (int, float)},
        like="sts",
        plain_texts=True,
        numeric=True,
        baseline="the median",
        transformers_class="SequenceClassification",
    ),
    "embedding": Kind("embedding:EmbeddingTask", keys={"files": (dict,)}, like="sentence_embedding", embeds=True),
    "tagging": Kind(
        "tagging:TaggingTask",
        keys=FILE_KEYS | {"spans": (bool,), "labels": (list,), "text_columns": (list,), "label_column": (str,)},
        like="chunk",
        transformers_class="TokenClassification",
        input="window",
    ),
    "qa": Kind(
        "qa:QATask",
        keys=FILE_KEYS
        | {"v2": (bool,), "mrqa": (bool,), "f1_of": (str,), "text_columns": (list,), "label_column": (str,)},
        like="squad",
        transformers_class="QuestionAnswering",
        outputs_name="qa",
        example="question",
        input="window",
        baseline="always no answer",
    ),
    "spans": Kind("text:TextTask"),  # classes of two marked parts of the texts
    "choice": Kind("choice:ChoiceTask", input="candidate"),
    "prompt": Kind("prompt:PromptTask"),  # a kind that is `plain_texts` with the hparam `prompt`
}


def kind_named(name: str) -> Kind:
    """Takes the row of a kind. A task in Python, "module:Class", has one with defaults."""
    return KINDS.get(name, Kind(name, transformers_class="SequenceClassification"))
