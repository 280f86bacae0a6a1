"""Health of a model by its metrics: has it left the plateau, have its states collapsed?

Masked language models first learn how frequent tokens are and nothing else. On this plateau their loss at hidden tokens
is the unigram entropy of the records, a detector has nothing to detect, and fine-tuning does worse than from random
weights (docs/small_budgets.md). Imports no TensorFlow.
"""

from collections.abc import Mapping

from electra_tf2.model.architecture import Architecture
from electra_tf2.util.progress import counted

PLATEAU_MARGIN = 0.5  # a loss so many nats below the unigram entropy needs more than token frequencies
FAR_ABOVE = 0.5  # a loss so many nats above it shows that not even the frequencies are learned
COLLAPSE = 0.9  # states with a mean cosine above this hardly differ
FEW_STEPS = 1000  # with the papers' settings, small networks are on the plateau for thousands
ON_TRAINING_RECORDS = "on_training_records"  # a metric, 1, of evaluations for which no records were held out
ADVICE = "train for longer, or see docs/small_budgets.md for settings that leave it within minutes"


def advice_for(architecture: Architecture, steps: int) -> str:
    """Advice for a run that ended on the plateau or above it, after so many steps.

    Another network is proposed only after many: who repeats a paper's run would not repeat it with that.
    """
    if steps < FEW_STEPS:
        verb = "is" if steps == 1 else "are"
        return f"{counted(steps, 'step')} {verb} few: train for longer"
    longer = f"train for longer ({steps:,} steps so far)"
    if architecture.relative_position_start == "local":
        return longer
    flags = "--relative-position-start local"
    if architecture.relative_positions == "none":
        flags = f"--relative-positions t5 {flags}"
    return f"{longer}, or leave the plateau within minutes by attention that starts locally: {flags}"


def on_plateau(masked_lm_loss: float, unigram_entropy: float, kept: float = 0.0) -> bool:
    """True if a masked language model knows token frequencies only, or less.

    Args:
      masked_lm_loss, unigram_entropy: in nats.
      kept: share of the drawn tokens that the model can see, whose loss is 0; 0 for a loss at hidden tokens only.
    """
    return masked_lm_loss > (1.0 - kept) * (unigram_entropy - PLATEAU_MARGIN)


def warnings(metrics: Mapping[str, float], advice: str = ADVICE) -> list[str]:
    """Warnings about an evaluated model, a line each; none if nothing is wrong, or nothing was measured."""
    problems = []
    if metrics.get(ON_TRAINING_RECORDS):
        problems.append(
            "evaluated on training records: on new text a model is worse, the more so the smaller its corpus"
        )
    if metrics.get("plateau"):
        loss = metrics["hidden_masked_lm_loss"]
        entropy = metrics["unigram_entropy"]
        problems.append(_plateau_line(loss, entropy, f"{entropy:.2f}", "at hidden tokens the", advice))
    judged = {"token_cosine": "states of tokens"}
    if "scl_loss" in metrics:  # other objectives do not make [CLS] differ between sentences (docs/small_budgets.md)
        judged["cls_cosine"] = "[CLS] states of different sentences"
    for name, what in judged.items():
        if metrics.get(name, 0.0) > COLLAPSE:
            problems.append(f"collapsed: the {what} have a mean cosine of {metrics[name]:.2f}; {advice}")
    return problems


def warning_of_training(
    masked_lm_loss: float | None,
    unigram_entropy: float | None,
    kept: float,
    advice: str = ADVICE,
) -> str | None:
    """Warning about a run that ends without an evaluation, by its last training loss; None if nothing is wrong."""
    if masked_lm_loss is None or unigram_entropy is None or not on_plateau(masked_lm_loss, unigram_entropy, kept):
        return None
    hidden = 1.0 - kept
    frequencies = hidden * unigram_entropy
    shown = f"{frequencies:.2f}"
    if kept:
        shown += f" (unigram_entropy {unigram_entropy:.2f} times the {hidden:.0%} of the drawn tokens that are hidden)"
    return _plateau_line(masked_lm_loss, frequencies, shown, "the", advice)


def _plateau_line(loss: float, frequencies: float, shown: str, which: str, advice: str) -> str:
    """Warning about a model that knows token frequencies only, or not even those.

    Args:
      frequencies: loss of a model that knows token frequencies and nothing else.
      shown: the same in words.
    """
    state = "on the plateau"
    if loss > frequencies + FAR_ABOVE:
        state = "has not learned token frequencies yet"
    return f"{state}: {which} masked-LM loss is {loss:.2f}, where a model of token frequencies has {shown}; {advice}"
