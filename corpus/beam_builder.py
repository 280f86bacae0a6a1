"""Runs the units of a build on Apache Beam, for corpora beyond one machine.

The same plan, units and shards as the local builder, hence the same bytes; Beam only decides where each unit runs. The
corpus, the vocabulary and the output directory must lie on a file system that all workers see under the same paths.
Needs Apache Beam, which the optional dependency group `beam` of pyproject.toml installs.
"""

from collections.abc import Sequence

from electra_tf2.corpus.build_plan import Unit
from electra_tf2.corpus.build_unit import build_unit
from electra_tf2.corpus.dataset_builder import RunUnits
from electra_tf2.corpus.staging import Staging
from electra_tf2.util.environment import quiet_tensorflow
from electra_tf2.util.errors import UserError


def run_beam(pipeline_args: Sequence[str] = ()) -> RunUnits:
    """Runs units in a Beam pipeline; pipeline_args are Beam's own flags, such as --runner=FlinkRunner."""
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise UserError("--runner=beam needs Apache Beam: pip install 'apache-beam>=2.60'") from None

    def run(staging: Staging, units: list[Unit]) -> None:
        numbers = [unit.number for unit in units]
        with beam.Pipeline(options=PipelineOptions(list(pipeline_args))) as pipeline:
            numbers = pipeline | "Units" >> beam.Create(numbers) | "Spread" >> beam.Reshuffle()
            _ = numbers | "Build" >> beam.Map(_build, staging)

    return run


def _build(number: int, staging: Staging) -> None:
    quiet_tensorflow()
    for _ in build_unit(staging, staging.plan.units[number]):
        pass
