"""Health of a model by its metrics: has it left the plateau, have its states collapsed?

Masked language models first learn how frequent tokens are and nothing else. Until they leave that plateau their loss
at hidden tokens is the unigram entropy of the records, a detector has nothing to detect, and fine-tuning from them does
worse than from random weights (docs/small_budgets.md). No TensorFlow here: fine-tuning and pre-training both ask.
"""

from collections.abc import Mapping

PLATEAU_MARGIN = 0.5  # nats below the unigram entropy from which on a model knows more than frequencies
COLLAPSE = 0.9  # mean cosine of [CLS] or of token states that leaves hardly any direction to tell them apart
_ADVICE = "train for longer, or see docs/small_budgets.md for settings that leave it within minutes"


def on_plateau(masked_lm_loss: float, unigram_entropy: float, kept: float = 0.0) -> bool:
    """True if a masked language model knows token frequencies only.

    Args:
      masked_lm_loss, unigram_entropy: in nats.
      kept: share of the drawn tokens that the model can see, which cost it nothing; 0 for a loss at hidden tokens.
    """
    return masked_lm_loss > (1.0 - kept) * (unigram_entropy - PLATEAU_MARGIN)


def warnings(metrics: Mapping[str, float]) -> list[str]:
    """A line for each thing that is wrong with an evaluated model; empty if nothing is, or if it was not measured."""
    found = []
    if metrics.get("plateau"):
        found.append(
            f"on the plateau: at hidden tokens the masked-LM loss is {metrics['hidden_masked_lm_loss']:.2f}, where a "
            f"model of token frequencies has {metrics['unigram_entropy']:.2f}; {_ADVICE}"
        )
    judged = {"token_cosine": "states of tokens"}
    if "scl_loss" in metrics:  # no other objective asks [CLS] to differ between sentences (docs/small_budgets.md)
        judged["cls_cosine"] = "[CLS] states of different sentences"
    for name, what in judged.items():
        if metrics.get(name, 0.0) > COLLAPSE:
            found.append(f"collapsed: the {what} have a mean cosine of {metrics[name]:.2f}; {_ADVICE}")
    return found


def warning_of_training(masked_lm_loss: float | None, unigram_entropy: float | None, kept: float) -> str | None:
    """The same of a run that ends without an evaluation, from its last training loss; None if nothing is wrong."""
    if masked_lm_loss is None or unigram_entropy is None or not on_plateau(masked_lm_loss, unigram_entropy, kept):
        return None
    frequencies = (1.0 - kept) * unigram_entropy
    return (
        f"on the plateau: the masked-LM loss is {masked_lm_loss:.2f}, where a model of token frequencies has "
        f"{frequencies:.2f}; {_ADVICE}"
    )
