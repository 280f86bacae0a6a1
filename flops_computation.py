"""Prints what a pre-training run costs: parameters and floating-point operations of any recipe or configuration.

  python flops_computation.py                        a table of all recipes
  python flops_computation.py --recipe electra_base  one of them by part
  python flops_computation.py --hparams '{"max_seq_length": 512}' --tflops 100

Two rules of counting. "Original rule" is that of google-research/electra's script, by which the paper's FLOPs were
counted (pretrain.original_flops). Everything else counts what a step does (pretrain.flops): matrix products alone,
2 per multiply-add, look-ups free, the masked-LM head at the masked positions only, backward twice the forward.
"""

from absl import flags

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.model.flops import main_network_parameters
from electra_tf2.pretrain.flops import (
    least_bytes_per_step,
    model_parts,
    parameter_count,
    training_flops,
    training_flops_per_example,
    update_flops,
)
from electra_tf2.pretrain.original_flops import original_table, original_training_flops
from electra_tf2.util import flags as util_flags
from electra_tf2.util.errors import UserError
from electra_tf2.util.hparams import all_hparams

_WIDTH = 35  # of a recipe's name


def _show_tables(tflops: float) -> None:
    print("Training FLOPs by the original's rule")
    for name, flops in original_table().items():
        print(f"  {name:{_WIDTH}} {flops:10.3e}")
    print(f"\nRecipes ({tflops:g} TFLOP/s sustained)")
    print(
        f"  {'':{_WIDTH}} {'parameters':>12} {'main network':>13} {'GFLOP/example':>14} {'training FLOPs':>15} "
        f"{'original rule':>14} {'days':>8}"
    )
    for name in util_flags.recipe_names():
        config = PretrainingConfig.from_dict({"model_name": name} | util_flags.read_recipe(name))
        flops, original = training_flops(config), original_training_flops(config)
        print(
            f"  {name:{_WIDTH}} {parameter_count(config):12,} {main_network_parameters(config.architecture):13,} "
            f"{training_flops_per_example(config) / 1e9:14.2f} {flops:15.3e} "
            f"{'-' if original is None else f'{original:.3e}':>14} {_days(flops, tflops):8.3g}"
        )


def _show_config(config: PretrainingConfig, tflops: float) -> None:
    print(f"{config.model_name}: sequences of {config.max_seq_length} tokens, {config.train_batch_size} a step")
    print(f"  {'':26} {'parameters':>13} {'forward GFLOP':>14}")
    for part in model_parts(config):
        print(f"  {part.name:26} {part.parameters:13,} {part.forward_flops / 1e9:14.4f}")
    forward = sum(part.forward_flops for part in model_parts(config))
    print(f"  {'in all':26} {parameter_count(config):13,} {forward / 1e9:14.4f}")
    flops, original = training_flops(config), original_training_flops(config)
    print(f"training: {training_flops_per_example(config) / 1e9:.4f} GFLOP per example (backward is twice forward)")
    if config.optimizer == "muon":
        print(f"  muon: {update_flops(config) / 1e9:.4f} GFLOP per update")
    print(
        f"  {config.num_train_steps:,} steps: {flops:.4e} FLOPs, {_days(flops, tflops):.3g} days at {tflops:g} TFLOP/s"
    )
    step, moved = config.train_batch_size * training_flops_per_example(config), least_bytes_per_step(config)
    print(f"  a step: {step / 1e9:,.0f} GFLOP; at least {moved / 1e9:.2f} GB moved, {step / moved:.0f} FLOPs a byte")
    if original is not None:
        print(f"  by the original's rule: {original:.4e} FLOPs")


def _days(flops: float, tflops: float) -> float:
    return flops / (tflops * 1e12) / 86400


def main() -> int:
    tflops = flags.FLAGS.tflops
    if tflops <= 0:
        raise UserError(f"--tflops must be above 0, got {tflops:g}")
    names = ["hparams", "recipe"] + [field.name for _, field in all_hparams(PretrainingConfig)]
    if any(flags.FLAGS[name].present for name in names):
        _show_config(util_flags.config_from_flags(PretrainingConfig), tflops)
    else:
        _show_tables(tflops)
    return 0


def command() -> None:
    flags.DEFINE_float("tflops", 50.0, "sustained rate for the column of days, in TFLOP/s")
    util_flags.define_hparam_flags(PretrainingConfig)
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
