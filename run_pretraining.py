"""Pre-trains a model: `python run_pretraining.py --help`."""

from electra_tf2.run_pretraining import command

if __name__ == "__main__":
    command()
