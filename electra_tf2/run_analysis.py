"""Makes the papers' analyses of pre-trained models: numbers as JSON, figures as PNG and PDF.

  electra analyze --analysis cosine --data-dir data --model-names electra_small,coco_lm_small
  electra analyze --analysis curves --data-dir data --runs electra_small,coco_lm_small

writes <output-dir>/<analysis>.json, .png and .pdf. --analysis:

  curves    losses and metrics that runs logged
  copying   accuracy of copying and of the language model during training (COCO-LM, Figure 8)
  contrast  cosines of a sequence and its crop, and of different ones, during training (COCO-LM, Figure 7)
  cosine    cosines of [CLS] of similar and of random sentences, before fine-tuning (COCO-LM, Figures 1 and 5)
  tsne      t-SNE of [CLS] of similar sentences (COCO-LM, Figure 6)

Similar sentences are the pairs of STS-B with the full score, in <data-dir>/finetuning_data/sts.
"""

from pathlib import Path

from absl import flags

from electra_tf2.util import flags as util_flags
from electra_tf2.util.errors import UserError
from electra_tf2.util.files import write_json
from electra_tf2.util.hparams import closest

ANALYSES = ("curves", "copying", "contrast", "cosine", "tsne")


def main() -> int:
    values = flags.FLAGS
    for analysis in values.analysis:
        if analysis not in ANALYSES:
            raise UserError(f"--analysis: no {analysis!r}{closest(analysis, ANALYSES)} (one of {', '.join(ANALYSES)})")
    from electra_tf2 import analysis as analyses  # and with it matplotlib and TensorFlow, of which --help has no need

    request = analyses.Request(
        data_dir=Path(values.data_dir),
        names=tuple(values.runs or values.model_names),
        num_pairs=values.num_pairs,
        perplexity=values.perplexity,
        seed=values.seed,
        metrics=tuple(values.metrics),
        over=values.over,
    )
    for name in request.names:
        if not request.folder(name).is_dir():
            flag = "--runs" if values.runs else "--model-names"
            raise UserError(f"{flag}: there is no {request.folder(name)}")
    target = Path(values.output_dir or request.data_dir / "analysis")
    for analysis in values.analysis:
        print(f"{analysis}:", flush=True)
        write_json(target / f"{analysis}.json", getattr(analyses, analysis)(request, target / analysis))
        print(f"wrote {target / analysis}.json, and figures beside it (.png, .pdf)")
    return 0


flags.DEFINE_list("analysis", ["cosine"], "analyses to make, separated by commas (see above)")
flags.DEFINE_string("data_dir", "data", "folder of vocabulary, records, models and finetuning_data")
flags.DEFINE_list("model_names", ["electra_small"], "pre-trained models to compare: <data-dir>/models/<name>")
flags.DEFINE_list("runs", [], "runs of which learning curves are drawn: names as in --model-names, or paths of folders")
flags.DEFINE_list("metrics", [], "metrics that learning curves show; default: losses and the usual metrics")
flags.DEFINE_enum("over", "steps", ["steps", "examples", "flops"], "what learning curves are drawn over")
flags.DEFINE_string("output_dir", None, "folder of the results; default <data-dir>/analysis")
flags.DEFINE_integer("num_pairs", 1000, "pairs of sentences at most", lower_bound=2)
flags.DEFINE_float("perplexity", 30.0, "perplexity of t-SNE", lower_bound=1.0)
flags.DEFINE_integer("seed", 0, "seed of random pairs and of t-SNE", lower_bound=0)


def command() -> None:
    util_flags.run(main, __doc__)


if __name__ == "__main__":
    command()
