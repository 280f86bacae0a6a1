"""The programs as commands of an installed package: `electra-pretrain` is `python run_pretraining.py`, and so on.

pyproject.toml gives each function here its name on the command line.
"""

import functools
import runpy


def _run(program: str) -> None:
    runpy.run_module(program, run_name="__main__")


analyze = functools.partial(_run, "run_analysis")
build_cooccurrence = functools.partial(_run, "build_cooccurrence")
build_data = functools.partial(_run, "build_pretraining_dataset")
build_document_frequency = functools.partial(_run, "build_document_frequency")
build_openwebtext = functools.partial(_run, "build_openwebtext_pretraining_dataset")
build_pmi_vocab = functools.partial(_run, "build_pmi_vocab")
build_vocab = functools.partial(_run, "build_vocab")
convert = functools.partial(_run, "convert_model")
finetune = functools.partial(_run, "run_finetuning")
flops = functools.partial(_run, "flops_computation")
pretrain = functools.partial(_run, "run_pretraining")
score = functools.partial(_run, "score_sentences")
