"""Runs the units of a build, on processes of this machine or on Apache Beam: the same bytes.

build_pretraining_dataset.py calls `build`: the plan says what is to be done, the staging folder what has been.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from electra_tf2.corpus.build_plan import BuildPlan, Unit
from electra_tf2.corpus.build_unit import build_unit
from electra_tf2.corpus.staging import Staging
from electra_tf2.corpus.worker_pool import run_on_processes
from electra_tf2.util.environment import cores, quiet_tensorflow
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress, say

_WORTH_A_PROCESS = 4 << 20  # bytes of text; importing TensorFlow once more takes as long as this

RunUnits = Callable[[Staging, list[Unit]], None]


def build(plan: BuildPlan, run_units: RunUnits, overwrite: bool = False) -> dict[str, Any]:
    """Builds, or goes on building, the records of a plan. Returns the metadata.

    Args:
      run_units: runs the units that are given, each of which leaves its report.

    Raises:
      UserError: the output directory holds something else or cannot be written, or the corpus is unusable.
    """
    staging = Staging(plan)
    with staging.locked():
        finished = staging.begin(overwrite)
        if finished is not None:
            say(
                f"{staging.output} already holds these records: flags, vocabulary, names and sizes of the corpus files "
                "are the same; nothing to do (--overwrite builds them anew)"
            )
            return finished
        units = staging.todo()
        if len(units) < len(plan.units):
            say(f"going on with an unfinished build: {len(plan.units) - len(units)} of {len(plan.units)} units done")
        run_units(staging, units)
        staging.complete()
        return staging.publish()


def run_local(num_processes: int = 0) -> RunUnits:
    """Runs units on this machine; one process means this one, 0 one for each core if there is work for it."""

    def run(staging: Staging, units: list[Unit]) -> None:
        # Large units first, so that the last ones to finish are small.
        units = sorted(units, key=lambda unit: -unit.text_bytes)
        total = sum(unit.text_bytes for unit in units)
        processes = num_processes or min(cores(), 1 + total // _WORTH_A_PROCESS)
        with Progress("MB of text", total / 1e6, unit="MB") as progress:
            run_on_processes(
                partial(build_unit, staging),
                units,
                min(processes, len(units)),
                progress,
                "run the same command again to go on, with a smaller --num-processes if memory is short",
            )

    return run


def run_beam(pipeline_args: Sequence[str] = ()) -> RunUnits:
    """Runs units on Apache Beam, for corpora beyond one machine; the records are the same.

    The corpus, the vocabulary and the output directory must lie on a file system that all workers see under the same
    paths.

    Args:
      pipeline_args: Beam's own flags, such as --runner=FlinkRunner.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError("--runner=beam needs Apache Beam: pip install 'apache-beam>=2.60'") from None

    def run(staging: Staging, units: list[Unit]) -> None:
        numbers = [unit.number for unit in units]
        with beam.Pipeline(options=PipelineOptions(list(pipeline_args))) as pipeline:
            numbers = pipeline | "Units" >> beam.Create(numbers) | "Spread" >> beam.Reshuffle()
            _ = numbers | "Build" >> beam.Map(_build_on_beam, staging)

    return run


def _build_on_beam(number: int, staging: Staging) -> None:
    quiet_tensorflow()
    for _ in build_unit(staging, staging.plan.units[number]):
        pass
