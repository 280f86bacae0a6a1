"""Fine-tunes a pre-trained model on GLUE, SQuAD, MRQA, tagging or one's own tasks, and scores it.

  python run_finetuning.py --data-dir data --model-name electra_small --task-names cola

reads <data-dir>/finetuning_data/cola/{train,dev}.tsv and starts from <data-dir>/models/electra_small. Scores go to
<data-dir>/models/electra_small/results. The same command resumes a run that was stopped. --predict FILE labels the
lines of a JSON-lines file with a model that was fine-tuned.
"""

import dataclasses
from pathlib import Path
from typing import Any

from absl import flags

from configure_finetuning import FinetuningConfig
from corpus.vocabulary import load_vocab
from util import flags as util_flags
from util.environment import import_tensorflow
from util.errors import UserError


def check_vocabulary(config: FinetuningConfig) -> None:
    """Before anything slow: the vocabulary is there and has the model's size."""
    size = len(load_vocab(config.vocab_file))
    if size != config.vocab_size:
        raise UserError(
            f"vocab_size is {config.vocab_size}, but {config.vocab_file} has {size} tokens: "
            "give the vocabulary that the model was pre-trained with, or its --vocab-size"
        )


def main() -> int:
    config = util_flags.config_from_flags(FinetuningConfig, with_recipe=False)
    predict = flags.FLAGS.predict
    if not (config.do_train or config.do_eval or predict):
        raise UserError("do_train and do_eval are both false: nothing to do")
    if predict:
        if not Path(predict).is_file():
            raise UserError(f"--predict: there is no file {predict}")
        config = dataclasses.replace(config, do_train=False)
    check_vocabulary(config)

    import_tensorflow()
    from corpus.tokenization import WordpieceTokenizer
    from finetune.registry import make_tasks
    from finetune.trials import Trials
    from training.distribution import check_batch, is_chief, make_strategy, wants_xla

    tokenizer = WordpieceTokenizer(config.vocab_file, config.do_lower_case, config.do_strip_accents)
    tasks = make_tasks(config, tokenizer)
    strategy = make_strategy(config)
    check_batch("train_batch_size", config.train_batch_size, strategy, config.gradient_accumulation_steps)
    check_batch("eval_batch_size", config.eval_batch_size, strategy)
    jit_compile = wants_xla(config)
    trials = Trials(config, tasks, strategy, jit_compile)
    if predict:
        from finetune.prediction import predict_file

        predict_file(trials, flags.FLAGS.trial, predict, flags.FLAGS.predict_output)
        return 0
    code, finished = trials.run()
    if finished and is_chief(strategy):
        report(config, finished)
    return code


def report(config: FinetuningConfig, finished: list[dict[str, Any]]) -> None:
    """Prints and writes the table and the scores of all trials."""
    from finetune.results import summarise_trials, table
    from util.files import write_atomically, write_json

    scores = [trial["scores"] for trial in finished]
    text = table(scores)
    print(text, end="")
    write_atomically(config.results_txt, text)
    write_json(
        config.results_json,
        {"tasks": config.task_names, "trials": finished, "summary": summarise_trials(scores)},
    )
    print(f"wrote {config.results_json}")


flags.DEFINE_string("predict", None, "JSON-lines file to label with a fine-tuned model")
flags.DEFINE_string("predict_output", None, "where to; default: <that file>.predictions.jsonl")
flags.DEFINE_integer("trial", 1, "the trial whose model --predict uses")
util_flags.define_hparam_flags(FinetuningConfig)

if __name__ == "__main__":
    util_flags.run(main, __doc__)
