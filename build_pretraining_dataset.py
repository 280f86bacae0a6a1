"""Writes pre-training records from text: `python build_pretraining_dataset.py --help`."""

from electra_tf2.build_pretraining_dataset import command

if __name__ == "__main__":
    command()
