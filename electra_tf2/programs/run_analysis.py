"""Makes the papers' analyses of pre-trained models: numbers as JSON, figures as PNG and PDF.

  electra analyze --model electra_small,coco_lm_small --analysis curves,cosine

writes <output-dir>/<analysis>.json, .png and .pdf. --analysis:

  curves    losses and metrics that runs logged
  copying   accuracy of copying and of the language model (COCO-LM, Figure 8)
  contrast  cosines of a sequence and its crop, and of others (Figure 7)
  cosine    cosines of [CLS] of similar and of random sentences, before
            fine-tuning (Figures 1 and 5)
  tsne      t-SNE of [CLS] of similar sentences (Figure 6)

Similar sentences are the pairs of STS-B with the full score, in <data-dir>/finetuning_data/sts. Curves are read from
train_metrics.jsonl, eval/step-N.json and results/unsup_results.json of a run.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from electra_tf2.config import flags as util_flags
from electra_tf2.files.writing import write_json
from electra_tf2.formats.folders import no_model
from electra_tf2.programs.analyses.learning_curves import AXES, CONTRAST, COPYING, curves
from electra_tf2.programs.analyses.request import Request
from electra_tf2.programs.analyses.sentence_vectors import cosine, tsne
from electra_tf2.util.errors import UserError, closest

ANALYSES: dict[str, Callable[[Request, Path], dict[str, Any]]] = {
    "curves": curves,
    "copying": functools.partial(curves, metrics=COPYING),
    "contrast": functools.partial(curves, metrics=CONTRAST),
    "cosine": cosine,
    "tsne": tsne,
}


def main() -> int:
    values = flags.FLAGS
    for analysis in values.analysis:
        if analysis not in ANALYSES:
            raise UserError(f"--analysis: no {analysis!r}{closest(analysis, ANALYSES)} (one of {', '.join(ANALYSES)})")
    names = tuple(values.model or values.runs or values.model_names)
    request = Request(Path(values.data_dir), names, tuple(values.metrics), values.over, values.seed)
    for name in names:
        folder = request.folder(name)
        if not folder.is_dir():
            raise no_model(folder, "--model", has_data_dir=True)

    output_dir = Path(values.output_dir or request.data_dir / "analysis")
    for analysis in values.analysis:
        print(f"{analysis}:", flush=True)
        analyse = ANALYSES[analysis]
        report = analyse(request, output_dir / analysis)
        write_json(output_dir / f"{analysis}.json", report)
        print(f"wrote {output_dir / analysis}.json, and figures beside it (.png, .pdf)")
    return 0


def command() -> None:
    flags.DEFINE_list("analysis", ["curves"], "analyses to make, separated by commas (see above)")
    flags.DEFINE_string("data_dir", "data", "folder of vocabulary, records, models and finetuning_data")
    models_text = "models to compare: names of runs in <data-dir>/models or of shipped models, or paths of folders"
    flags.DEFINE_list("model", [], f"{models_text} [electra_small]")
    flags.DEFINE_list("model_names", ["electra_small"], "the same as --model")
    flags.DEFINE_list("runs", [], "the same as --model")
    util_flags.hide("model_names", "runs")
    flags.DEFINE_list("metrics", [], "metrics that learning curves show; default: losses and the usual metrics")
    flags.DEFINE_enum("over", "steps", list(AXES), "what learning curves are drawn over")
    flags.DEFINE_string("output_dir", None, "folder of the results; default <data-dir>/analysis")
    flags.DEFINE_integer("seed", 0, "seed of random pairs and of t-SNE", lower_bound=0)
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
