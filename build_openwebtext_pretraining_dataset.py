"""Writes pre-training records from OpenWebText's archives: see --help."""

from electra_tf2.build_openwebtext_pretraining_dataset import command

if __name__ == "__main__":
    command()
