"""The hyperparameters of fine-tuning: the original's names and defaults, and ours beside them.

Imports no TensorFlow: a wrong hparam fails in a fraction of a second. `FinetuningConfig.from_dict` is the one way in.
What it is given comes from finetune.starts, which reads the folders of models, recipes and the table of tasks.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from electra_tf2.config.hparams import checked, free_hparam, hparam, model_hparam
from electra_tf2.settings import columns
from electra_tf2.settings.described import DESCRIBED, check_names, settings_of
from electra_tf2.settings.kinds import kind_named
from electra_tf2.training.shared_hparams import DeviceHparams, NetworkHparams, OptimizerHparams
from electra_tf2.util.errors import UserError


@dataclasses.dataclass(frozen=True)
class FinetuningConfig(NetworkHparams, OptimizerHparams, DeviceHparams):
    """Everything that fine-tuning depends on."""

    # Run
    model_name: str = free_hparam("electra_small", "name of the pre-trained model", heading="Run")
    recipe: str = free_hparam("", "recipe whose section finetuning applies [the pre-trained model's]", place="other")
    data_dir: str = free_hparam("data", "folder of vocabulary, models and finetuning_data", place="other")
    task_names: list[str] = model_hparam(["chunk"], "tasks to learn together: names with commas, or a JSON list")
    tasks: dict[str, Any] = model_hparam({}, "tasks of your own: name -> {type, text_columns, ...} (docs/own_tasks.md)")
    model: str = free_hparam("", "model to start from: a name as model_name, or a folder in any format", place="other")
    train_file: str = free_hparam("", "table or JSON lines to learn from: a task called like the file", place="other")
    dev_file: str = free_hparam("", "file to score on, beside train_file [a tenth of that, held out]", place="other")
    test_file: str = free_hparam("", "file to score at the end, beside train_file", place="other")
    text_column: list[str] = hparam(
        [columns.TEXT],
        "train_file's column of text, or two with a comma; of questions: QUESTION,CONTEXT",
        free_on_resume=True,
    )
    label_column: str = free_hparam(columns.LABEL, "train_file's column of labels, tags or answers")
    task_type: str = free_hparam("classification", "what train_file holds", choices=DESCRIBED)
    num_trials: int = free_hparam(1, "number of training runs, each with a seed of its own", at_least=1)
    do_train: bool = free_hparam(True, "train the model")
    do_eval: bool = free_hparam(True, "evaluate the model, after training if both are set")
    keep_all_models: bool = free_hparam(True, "false: only the last trial's model is kept")
    keep_best: bool = hparam(False, "score the checkpoint that does best on the development data while training")
    early_stopping: int = hparam(0, "evaluations without a better score that end the training; 0: never", at_least=0)
    log_examples: bool = free_hparam(False, "print some training examples as the model sees them")
    debug: bool = free_hparam(False, "a few examples and steps, to try out the machinery")
    debug_examples: int = hparam(0, "number of a split's examples that are used, at most; 0: all", at_least=0)
    train_share: float = hparam(1.0, "share of the training examples that is used, drawn at random", above=0, at_most=1)
    overwrite: bool = free_hparam(False, "train anew: folders of trials that are there are renamed and kept")

    # Optimisation
    learning_rate: float = hparam(
        1e-4, "peak learning rate [small: 3e-4, large: 5e-5]", at_least=0, heading="Optimisation"
    )
    layerwise_lr_decay: float = hparam(
        0.8,
        "factor of learning_rate from a layer to the next below; 0, 1: none [large: 0.9]",
        at_least=0,
        at_most=1,
    )
    layerwise_lr_top: str = hparam(
        "pooler",
        "where layerwise_lr_decay begins: pooler: the top layer has two factors less than the head, as if there were "
        "a pooler (the original); head: one factor less",
        choices=("pooler", "head"),
    )
    num_train_epochs: float = hparam(3.0, "number of passes over the training data [rte, sts: 10, qa: 2]", at_least=0)
    min_train_steps: int = hparam(
        0,
        "steps of a training at least: of few data there are more passes than num_train_epochs [a task of one's own, "
        "unless num_train_epochs is given: 100]",
        at_least=0,
    )
    warmup_proportion: float = hparam(0.1, "share of the steps in which the learning rate rises", at_least=0, at_most=1)
    lr_schedule: str = hparam(
        "multiply",
        "how warm-up and decay go together: multiply: warm-up factor x decay from step 0 (the original); separate: "
        "decay starts after warm-up",
        choices=("multiply", "separate"),
    )
    loss_reduction: str = hparam("sum", "how a batch's losses become one; the original: sum", choices=("sum", "mean"))
    seed: int = hparam(0, "seed of the first trial; each further trial adds 1", at_least=0)

    # Training
    save_checkpoints_steps: int = free_hparam(1000, "steps between two checkpoints", at_least=1, heading="Training")
    iterations_per_loop: int = free_hparam(100, "steps between two reports of the losses", at_least=1)
    eval_every_steps: int = hparam(
        0, "steps between evaluations on development data; 0: one at the end, with keep_best one an epoch", at_least=0
    )
    init_checkpoint: str | None = free_hparam(None, "model to start from, in any format [model_name's]", place="other")
    random_init: bool = hparam(False, "start from random weights, not from the pre-trained model, for comparison")

    # Inputs
    max_seq_length: int = hparam(128, "tokens of an input, at most [chunk: 256, qa: 512]", at_least=8, heading="Inputs")
    train_batch_size: int = hparam(32, "examples of a training step, over all devices", at_least=1)
    eval_batch_size: int = free_hparam(32, "examples of a batch that is evaluated", at_least=1)
    predict_batch_size: int = free_hparam(32, "examples of a batch of --predict", at_least=1)
    fixed_padding: bool = hparam(False, "every batch is padded to max_seq_length, as the original does")

    # Heads
    double_unordered: bool = hparam(
        True,
        "train on both orders of two texts if their order means nothing in the task (mrpc, sts; in a train_file of "
        "pairs if this is given)",
        heading="Heads and tasks",
    )
    classifier: str = model_hparam(
        "linear",
        "head of classification, multiple choice and spans, not of tagging, qa or prompts: linear: dropout and a dense "
        "layer (ELECTRA); tanh, gelu: another one before (COCO-LM)",
        choices=("linear", "tanh", "gelu"),
    )
    classifier_pooling: str = model_hparam(
        "cls",
        "what such a classifier reads, and what an embedding is: cls: the state of [CLS] (the papers); mean: the mean "
        "of all tokens' states, better for models whose pre-training taught [CLS] little [sentence_embedding: mean]",
        choices=("cls", "mean"),
    )
    contrast_temperature: float = hparam(
        0.05,
        "temperature of the softmax over a batch, of embedding tasks (SimCSE, section 6)",
        above=0,
    )
    embedding_projection: int = model_hparam(0, "width of a linear map of a text's state; 0: none", at_least=0)
    lexical_weight: float = hparam(
        0.0, "weight of a loss that draws embeddings' cosines to those of TF-IDF of wordpieces (ours)", at_least=0
    )
    classifier_dropout: float = hparam(0.1, "dropout before a classifier", at_least=0, below=1)
    class_weights: str = hparam(
        "none",
        "how much a class's examples count in training: none: equally; balanced: every class as much as any other; or "
        'a JSON object, label -> weight, e.g. {"spam": 5}',
    )
    max_query_length: int = hparam(64, "tokens of a question, at most", at_least=1)
    doc_stride: int = hparam(128, "tokens from a window of a document to the next, at most half a window", at_least=1)
    n_best_size: int = free_hparam(20, "number of best answers to a question that are written", at_least=1)
    max_answer_length: int = free_hparam(30, "tokens of an answer, at most", at_least=1)
    joint_prediction: bool = model_hparam(True, "the end of an answer is predicted given its start")
    beam_size: int = free_hparam(20, "starts of an answer that are considered, and ends for each", at_least=1)
    answerable_classifier: bool = model_hparam(True, "predict whether a question has an answer")
    answerable_uses_start_logits: bool = model_hparam(True, "answerable_classifier reads the predicted start's state")
    answerable_weight: float = hparam(0.5, "weight of the loss of answerable_classifier", at_least=0)
    qa_na_threshold: float = free_hparam(-2.75, "score of there being no answer above which none is given")
    qa_out_of_span: str = hparam(
        "cls",
        "what windows without the answer are trained on: cls: answerable, with both ends at [CLS] (the original); "
        "impossible: as if the question had no answer; skip: not trained on",
        choices=("cls", "impossible", "skip"),
    )

    # Few examples
    few_shot: int = model_hparam(
        0,
        "K: train on K examples of each label; keep_best chooses the checkpoint on K others (LM-BFF); 0: all data",
        at_least=0,
        heading="Few examples",
    )
    few_shot_seed: int = model_hparam(13, "seed of few_shot's examples (LM-BFF: 13, 21, 42, 87, 100)", at_least=0)
    prompt: bool = model_hparam(False, "labels are words at a [MASK], which the language-model head scores (LM-BFF)")
    prompt_template: str = model_hparam("", "template of prompt, e.g. '{0:trim} ? [MASK] , {1:lower}' [GLUE: LM-BFF's]")
    prompt_words: dict[str, Any] = model_hparam({}, "label -> prompt's word; low, high for regression [GLUE: LM-BFF's]")
    prompt_demonstrations: bool = model_hparam(True, "with prompt, an example of each label stands beside the question")
    prompt_draws: int = hparam(0, "draws of demonstrations an example and epoch; 0: for 8,000 inputs", at_least=0)
    prompt_evaluation_draws: int = free_hparam(16, "draws that an evaluation averages [mnli: 4]", at_least=1)

    # Outputs
    write_test_outputs: bool = free_hparam(False, "predict the test files, and write submissions", heading="Outputs")
    n_writes_test: int = free_hparam(5, "number of trials whose models write_test_outputs predicts with", at_least=1)
    write_distill_outputs: bool = free_hparam(False, "write the model's outputs on the training data, for distillation")

    # Files
    pretrained_model_dir: str = free_hparam(
        "", "folder of the pre-trained model; default <data_dir>/models/<model_name>", heading="Files", place="other"
    )
    raw_data_dir: str = free_hparam("", "folder of the tasks' folders [<data_dir>/finetuning_data]", place="other")
    vocab_file: str = free_hparam("", "vocabulary [that of the model, else <data_dir>/vocab.txt]", place="read")
    model_dir: str = free_hparam(
        "", "folder of the fine-tuned models [<pretrained_model_dir>/finetuning_models/<tasks>_model]", place="other"
    )
    results_dir: str = free_hparam("", "folder of the results; default <pretrained_model_dir>/results", place="other")
    results_txt: str = free_hparam("", "table of the scores [<results_dir>/<tasks>_results.txt]", place="other")
    results_json: str = free_hparam("", "scores of trials, JSON [<results_dir>/<tasks>_results.json]", place="other")
    test_predictions: str = free_hparam("", "test predictions [<pretrained_model_dir>/test_predictions]", place="other")

    @classmethod
    def from_dict(cls, hparams: Mapping[str, Any]) -> "FinetuningConfig":
        """Checks hparams, and fills in the paths that were left to follow from others. Reads no files.

        Raises:
          UserError: names every problem.
        """
        config = cls(**checked(cls, hparams))
        check_names(config.task_names, config.tasks)
        config = dataclasses.replace(config, **config._derived())
        problems = list(config._problems())
        if problems:
            raise UserError("hparams: " + "; ".join(problems))
        return config

    @property
    def run_name(self) -> str:
        """Name of a run's folders and results: its tasks."""
        return ",".join(self.task_names)

    def _derived(self) -> dict[str, Any]:
        """Values of the fields that were left to follow from others."""
        pretrained = self.pretrained_model_dir or os.path.join(self.data_dir, "models", self.model_name)
        results_dir = self.results_dir or os.path.join(pretrained, "results")
        trials = os.path.join(pretrained, "finetuning_models", f"{self.run_name}_model")
        init_checkpoint = None
        if not self.random_init:
            init_checkpoint = self.init_checkpoint or pretrained
        return {
            "embedding_size": self.resolved_embedding_size,
            "keep_best": self.keep_best or self.early_stopping > 0,
            "raw_data_dir": self.raw_data_dir or os.path.join(self.data_dir, "finetuning_data"),
            "vocab_file": self.vocab_file or os.path.join(self.data_dir, "vocab.txt"),
            "pretrained_model_dir": pretrained,
            "init_checkpoint": init_checkpoint,
            "model_dir": self.model_dir or trials,
            "results_dir": results_dir,
            "results_txt": self.results_txt or os.path.join(results_dir, f"{self.run_name}_results.txt"),
            "results_json": self.results_json or os.path.join(results_dir, f"{self.run_name}_results.json"),
            "test_predictions": self.test_predictions or os.path.join(pretrained, "test_predictions"),
        }

    def _problems(self) -> Iterator[str]:
        """Problems of the combination."""
        architecture = self.architecture
        cannot_be_prompted = []
        without_classes = []
        without_labels = []
        for name in self.task_names:
            settings = settings_of(name, self.tasks)
            kind = kind_named(settings.kind)
            if kind.embeds:
                without_labels.append(name)
            if settings.is_ours and not kind.plain_texts:
                cannot_be_prompted.append(name)
            if settings.is_ours and (kind.numeric or not kind.plain_texts):
                without_classes.append(name)
        yield from self.device_problems()
        yield from self.batch_problems(self.train_batch_size)
        yield from architecture.problems()
        yield from architecture.length_problems(self.max_seq_length)
        if cannot_be_prompted and (self.prompt or self.few_shot):
            yield f"prompt and few_shot are for classes of texts, not for {', '.join(cannot_be_prompted)}"
        if self.prompt and self.random_init:
            yield "prompt needs a pre-trained language model: not random_init"
        if self.few_shot and self.train_share < 1:
            yield "few_shot and train_share are both set: choose one"
        if not self.prompt and (self.prompt_template or self.prompt_words):
            yield "prompt_template and prompt_words need prompt to be true"
        if self.classifier != "linear" and architecture.head_style == "modernbert":
            yield f"classifier {self.classifier}: head_style modernbert has a layer of its own before every last one"
        if self.write_distill_outputs and without_labels:
            yield "write_distill_outputs: vectors of texts have no labels that another model could learn"
        for name in ("write_test_outputs", "write_distill_outputs"):
            if getattr(self, name) and not self.do_eval:
                yield f"{name} needs do_eval, after which it comes"
        if self.class_weights != "none" and (self.prompt or without_classes):
            names = ", ".join(without_classes or self.task_names)
            yield f"class_weights are for classification without prompts, not for {names}"

    def task_data_dir(self, task: str) -> str:
        """Folder of a task's files."""
        return os.path.join(self.raw_data_dir, task)

    def kind_of(self, task: str) -> str:
        """Kind of a task: one of settings.kinds.KINDS, or the class of a task in Python."""
        return settings_of(task, self.tasks).kind
