"""Prints parameters and FLOPs of configurations: `python flops_computation.py --help`."""

from electra_tf2.flops_computation import command

if __name__ == "__main__":
    command()
