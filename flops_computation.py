"""Prints parameters and FLOPs of configurations: `python flops_computation.py --help`."""

try:
    from electra_tf2.programs.flops_computation import command
except ModuleNotFoundError as error:
    raise SystemExit(f"error: {error}: this Python lacks what the program needs; `pip install .` here first") from None

if __name__ == "__main__":
    command()
