"""A fine-tuned model that answers, in memory: --predict puts files before and after it, electra_tf2 Python objects."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.encoding import refuse_single
from electra_tf2.exchange.network import graph_of_any_shape
from electra_tf2.exchange.sources import Model
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.finetuning_model import FinetuningModel
from electra_tf2.finetune.task import Prediction, Split, Task, make_tasks
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import track


class Predictor:
    """Answers of the tasks that a model was fine-tuned on.

    Args:
      source: configuration, weights and task states.

    Raises:
      UserError: the model is not fine-tuned, or something of it is missing.
    """

    def __init__(self, source: Model, tokenizer: WordpieceTokenizer) -> None:
        if not isinstance(source.config, FinetuningConfig) or source.task_states is None:
            raise UserError(f"{source.origin} is not fine-tuned: run_finetuning.py makes models that predict")
        self.config = FinetuningConfig.from_dict({**vars(source.config), "do_train": False})
        self.tasks = make_tasks(self.config, tokenizer)
        adopt_states(self.tasks, source.task_states, source.origin)
        self.model = FinetuningModel(self.config, self.tasks, self.config.seed)
        for variable in self.model.trainable_variables:
            name = variable.name.split(":")[0]
            if name not in source.weights:
                raise UserError(f"{source.origin} lacks {name}")
            variable.assign(source.weights[name])
        self._predict = graph_of_any_shape(self._predict_batch)

    def __call__(self, texts: Sequence[Any], name: str | None = None) -> list[dict[str, Any]]:
        """The answers, in the order of the texts.

        Args:
          texts: see electra_tf2.Model.predict.
          name: of the task; None: the first.
        """
        names = [task.name for task in self.tasks]
        if name is not None and name not in names:
            raise UserError(f"predict: there is no task {name!r}; the model learned {', '.join(names)}")
        number = names.index(name) if name else 0
        task = self.tasks[number]
        refuse_single(texts)
        if not len(texts):
            return []
        split = task.parse([self._row(task, text) for text in texts], "texts")
        return task.answers(split, self.predictions(number, split))

    def predictions(self, number: int, split: Split) -> list[Prediction]:
        """The predictions of the task of this number on all features of a split."""
        task, size = self.tasks[number], self.config.predict_batch_size
        features = TaskFeatures(task.name, split.features, task.labels)
        table = FeatureTable([features], self.config.max_seq_length, self.config.fixed_padding, task.choices)
        predictions: list[Prediction] = [{} for _ in range(len(table))]
        for batch in track(table.evaluation_batches(size), f"batch of {size}", -(-table.examples // size)):
            output = {key: value.numpy() for key, value in self._predict(batch, number).items()}
            for i, row in enumerate(batch["row"].numpy()):
                if row >= 0:
                    predictions[row] = {key: value[i] for key, value in output.items()}
        return predictions

    def _predict_batch(self, batch: dict[str, tf.Tensor], number: int) -> dict[str, tf.Tensor]:
        return self.model.predict(batch, number).predictions

    def _row(self, task: Task, text: Any) -> dict[str, Any]:
        """A text or a pair as the object that the task's `parse` reads."""
        if isinstance(text, dict):
            return text
        if not isinstance(text, (str, tuple, list)):
            raise UserError(f"predict: a text, a tuple of texts, a list of words or an object, not {shown(text)}")
        kind = self.config.kind_of(task.name)
        if kind == "tagging":
            return {"text": text} if isinstance(text, str) else {"words": list(text)}
        parts = (text,) if isinstance(text, str) else tuple(text)
        columns: Sequence[Any] = ("question", "context")
        if kind != "qa":
            spec = getattr(task, "spec", None)
            if spec is None:
                raise UserError(f"predict: give objects as in the .jsonl files of {task.name}")
            columns = [column if isinstance(column, str) else column[0] for column in spec.json_columns.texts]
        if len(parts) != len(columns):
            raise UserError(
                f"predict: {task.name} needs {len(columns)} text(s) ({', '.join(columns)}), got {len(parts)}"
            )
        return dict(zip(columns, parts, strict=True))
