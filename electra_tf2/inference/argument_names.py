"""The arguments of calls from Python in the place of what programs and other libraries call them."""

import re

from electra_tf2.config.hparams import all_hparams, value_type
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.settings.described import DESCRIBED

# Hparams that an argument of `finetune` determines -> that argument.
ARGUMENTS = {
    "train_file": "train",
    "dev_file": "dev",
    "test_file": "test",
    "model_name": "model",
    "init_checkpoint": "model",
    "pretrained_model_dir": "model",
    "model_dir": "folder",
    "results_dir": "folder",
    "results_txt": "folder",
    "results_json": "folder",
    "test_predictions": "folder",
}

# What other libraries call an hparam or an argument -> what it is here.
NAMES_ELSEWHERE = {
    "X": "train",
    "batch_size": "train_batch_size",
    "bf16": 'precision="bfloat16"',
    "compute_metrics": 'a key of the task, tasks={"texts": {"metric": "macro_f1"}}',
    "dev_data": "dev",
    "dev_size": "dev; without it a tenth of train is held out",
    "device": "num_gpus; 0 is the processor",
    "dropout": "hidden_dropout_prob",
    "epochs": "num_train_epochs",
    "eval": "dev",
    "eval_data": "dev",
    "eval_dataset": "dev",
    "eval_steps": "eval_every_steps",
    "eval_strategy": "eval_every_steps, a number",
    "evaluation_strategy": "eval_every_steps, a number",
    "fp16": 'precision="float16"',
    "held_out": 'a key of the task, tasks={"texts": {"held_out": 0.2}}',
    "hparams": "each hparam by its name, seed=1",
    "load_best_model_at_end": "keep_best",
    "logging_steps": "iterations_per_loop",
    "lr": "learning_rate",
    "lr_scheduler_type": "left out, since the learning rate falls linearly to 0",
    "max_length": "max_seq_length",
    "max_steps": "num_train_epochs",
    "max_train_steps": "num_train_epochs",
    "metric": 'a key of the task, tasks={"texts": {"metric": "macro_f1"}}',
    "metric_for_best_model": 'a key of the task, tasks={"texts": {"metric": "macro_f1"}}',
    "model_name_or_path": "model",
    "n_epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "num_labels": "left out, since the labels of the training data tell it",
    "optim": "optimizer",
    "output_dir": "folder",
    "overwrite_output_dir": "overwrite",
    "patience": "early_stopping",
    "per_device_eval_batch_size": "eval_batch_size",
    "per_device_train_batch_size": "train_batch_size",
    "pretrained_model_name_or_path": "model",
    "random_state": "seed",
    "resume_from_checkpoint": "folder, with which the same call goes on",
    "save_steps": "save_checkpoints_steps",
    "save_strategy": "save_checkpoints_steps, a number",
    "target": "labels",
    "test_dataset": "test",
    "test_size": "dev; without it a tenth of train is held out",
    "text": "train, or text_column",
    "tokenizer": "left out, since a model brings its own",
    "train_dataset": "train",
    "train_texts": "train",
    "val": "dev",
    "validation": "dev",
    "validation_data": "dev",
    "validation_split": "dev; without it a tenth of train is held out",
    "warmup_ratio": "warmup_proportion",
    "warmup_steps": "warmup_proportion",
    "weight_decay": "weight_decay_rate",
    "y": "labels",
}


def with_arguments(message: str) -> str:
    """A message with the arguments of `finetune` in the place of the program's flags, a flag's value behind it.

    "pass --overwrite" becomes "pass overwrite=True", "--num-gpus 0" num_gpus=0, "--text-column" text_column, and
    "--task-type qa" task_type="qa".
    """
    fields = {field.name: (declaring_class, field) for declaring_class, field in all_hparams(FinetuningConfig)}

    def argument(match: re.Match) -> str:
        if match["command"]:
            return match["command"]
        name = match["name"].replace("-", "_")
        is_on = name in fields or not name.startswith("no_")
        if not is_on:
            name = name.removeprefix("no_")
        if name not in fields:
            return match[0]  # a flag of another command
        value = match["value"]
        argument_name = ARGUMENTS.get(name, name)
        if value_type(*fields[name])[0] is bool:
            return f"{argument_name}={is_on}{match['behind'] or ''}"
        if not value:
            return argument_name
        if not value.isdecimal():
            value = f'"{value}"'
        return f"{argument_name}={value}"

    value = rf"[0-9]+|[A-Z]+(,[A-Z]+)*|{'|'.join(DESCRIBED)}"
    command = r"electra [a-z]+( --[a-z-]+( [^\s-]\S*)?)*"  # a whole one stays
    flag = rf"--(?P<name>[a-z][a-z0-9-]*)(?P<behind> (?P<value>{value})\b)?"
    return re.sub(rf"(?P<command>{command})|{flag}", argument, message)
