"""Fine-tunes a pre-trained model on a table of your own, GLUE, SQuAD, MRQA or tagging, and scores it.

  python run_finetuning.py --train-file reviews.csv --model electra_deep

learns the column `label` of a table from its column `text`. A tenth of the rows is held out, on which the model is
scored.

  python run_finetuning.py --data-dir data --model electra_small \\
      --task-names cola

reads <data-dir>/finetuning_data/cola/{train,dev}.tsv and starts from <data-dir>/models/electra_small. Scores go to
<data-dir>/models/<model>/results. The same command resumes a run that was stopped.

`electra predict FILE --model FOLDER` labels other rows with a trained model.
"""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.config.hparams import checked, layered
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.files.reading import is_file, read_bytes
from electra_tf2.files.table_files import SPLITS
from electra_tf2.files.writing import check_writable, encoded_output, row_format, write_atomically
from electra_tf2.finetune.starts import configuration, with_named
from electra_tf2.finetune.trained_folder import find_trained, is_fine_tuned, trained_config
from electra_tf2.inference.finetuning_run import check_vocabulary, prepare
from electra_tf2.util.environment import import_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import say


def check_files(chosen: dict[str, Any]) -> None:
    """Raises UserError if a file that a flag names is missing."""
    for split in SPLITS:
        path = chosen.get(f"{split}_file")
        if path and not Path(path).exists():
            raise UserError(f"--{split}-file: there is no file {path}")


def main() -> int:
    typed = checked(FinetuningConfig, layered(FinetuningConfig, util_flags.read_hparams(FinetuningConfig)))
    if flags.FLAGS.predict:
        return label(typed, flags.FLAGS.predict)
    chosen = with_named(typed)
    if not (chosen.get("do_train", True) or chosen.get("do_eval", True)):
        raise UserError("do_train and do_eval are both false: nothing to do")
    if chosen.get("do_train", True):
        check_files(chosen)
        config = configuration(chosen)
        config = prepare(config, typed, advice_on_folder(config))
    else:
        start = typed.get("init_checkpoint")
        if start and is_fine_tuned(start):
            # As in the original, this is then the model to score.
            chosen["model_dir"] = chosen.pop("init_checkpoint")
        config = trained_config(find_trained(chosen, 1), chosen, elsewhere=False)
        check_vocabulary(config)
    import_tensorflow()
    from electra_tf2.finetune.trials import Trials

    return Trials(config).run()


def advice_on_folder(config: FinetuningConfig) -> str:
    """Advises on a folder that holds a run with other hparams, and proposes one that does not exist."""
    suffix = 2
    while Path(f"{config.model_dir}-{suffix}_1").exists():
        suffix += 1
    new_folder = shlex.quote(f"{config.model_dir}-{suffix}")
    return f"Give what it was trained with, or --overwrite to train anew, or train beside it: --model-dir {new_folder}"


def label(typed: dict[str, Any], source: str) -> int:
    """Labels a file with a fine-tuned model, for --predict.

    If the answers go to standard output, everything else goes to standard error.
    """
    text_columns = typed.pop("text_column", [])
    if "label_column" in typed:
        raise UserError(
            "predict: leave --label-column out. A file is scored if its labels stand in a column that is called as in "
            "the training data: rename it"
        )
    chosen = with_named(typed)
    output = flags.FLAGS.predict_output
    if not output:
        output = "-" if source == "-" else f"{source}.predictions.jsonl"
    if source != "-" and not Path(source).is_fifo():  # a pipe can be read only once, by `predict`
        if not is_file(source) and not os.path.exists(source):
            hint = ""
            if " " in source:
                hint = f". A text itself is labelled by: echo {shlex.quote(source)} | electra predict - --model ..."
            raise UserError(f"there is no file {source}{hint}")
        read_bytes(source, "predict")  # raises UserError now, not after the model was loaded
    output_format = "jsonl"
    if output != "-":
        if os.path.exists(output) and os.path.exists(source) and os.path.samefile(output, source):
            raise UserError(f"--output {output} is the file that is to be labelled: give another")
        output_format = row_format(output)
        check_writable(output)
    folder = find_trained(chosen, flags.FLAGS.trial, flag="--model")
    wanted = chosen.pop("task_names", None)
    config = trained_config(folder, chosen, elsewhere=True)
    names = [name for name in config.task_names if wanted is None or name in wanted]
    if len(names) != 1:
        raise UserError(f"predict wants one task: {folder} has {', '.join(config.task_names)}; give --task-names")
    check_vocabulary(config)
    with contextlib.ExitStack() as stack:
        if output == "-":
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        import_tensorflow()
        from electra_tf2.inference.labelling import label_file

        answers = label_file(config, folder, names[0], source, output_format, text_columns)
    if output == "-":
        if isinstance(sys.__stdout__, io.TextIOWrapper):
            sys.__stdout__.reconfigure(encoding="utf-8")  # answers are data for other programs, in any locale
        print(answers, end="")
        return 0
    if os.path.isfile(output):
        print(f"note: {output} was there and is replaced", file=sys.stderr)
    write_atomically(output, encoded_output(output, answers))
    say(f"labelled {source}: {output}")
    return 0


_FILES = ".jsonl or .json (lines or a list), .csv, .tsv, text; - is standard input"
flags.DEFINE_string("predict", None, f"file to label with a fine-tuned model: {_FILES}")
flags.DEFINE_string(
    "predict_output",
    None,
    "file that --predict writes: a table if it is .csv or .tsv, a list if it is .json, lines of a word and its tag "
    "if it is .conll or .txt, else JSON lines; "
    "-: standard output [<the file>.predictions.jsonl]",
)
flags.DEFINE_integer("trial", 1, "the trial whose model --predict uses")
# Flags that --help shows; --help all shows the others, too. Of those for labelling it shows none, since
# `electra predict` is the documented way.
_FIRST = """
    hparams model train_file dev_file test_file text_column label_column task_type data_dir task_names tasks model_dir
    num_trials overwrite learning_rate num_train_epochs train_batch_size max_seq_length seed precision num_gpus
    keep_best eval_every_steps few_shot write_test_outputs
"""
FIRST = tuple(_FIRST.split())
util_flags.define_hparam_flags(FinetuningConfig)


def command() -> None:
    util_flags.run(main, __doc__, goes_on=True, first=FIRST)


if __name__ == "__main__":
    command()
