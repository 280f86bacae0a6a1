"""Writes pre-training records from text: `python build_pretraining_dataset.py --help`."""

try:
    from electra_tf2.programs.build_pretraining_dataset import command
except ModuleNotFoundError as error:
    raise SystemExit(f"error: {error}: this Python lacks what the program needs; `pip install .` here first") from None

if __name__ == "__main__":
    command()
