"""Fine-tunes a model and scores it: `python run_finetuning.py --help`."""

try:
    from electra_tf2.programs.run_finetuning import command
except ModuleNotFoundError as error:
    raise SystemExit(f"error: {error}: this Python lacks what the program needs; `pip install .` here first") from None

if __name__ == "__main__":
    command()
