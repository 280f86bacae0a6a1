"""Fine-tunes a model and scores it: `python run_finetuning.py --help`."""

from electra_tf2.run_finetuning import command

if __name__ == "__main__":
    command()
