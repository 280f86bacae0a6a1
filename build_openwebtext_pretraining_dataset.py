"""Writes pre-training records from OpenWebText's archives: see --help."""

try:
    from electra_tf2.programs.build_openwebtext_pretraining_dataset import command
except ModuleNotFoundError as error:
    raise SystemExit(f"error: {error}: this Python lacks what the program needs; `pip install .` here first") from None

if __name__ == "__main__":
    command()
