"""PMI-masking's hparams (Levine et al. 2021)."""

import dataclasses
import os
from typing import Any

from electra_tf2.config.hparams import free_hparam, hparam
from electra_tf2.configure_pretraining import PretrainingConfig


@dataclasses.dataclass(frozen=True)
class Config(PretrainingConfig):
    """N-grams as a unit of masking."""

    mask_unit: str = hparam(
        "pmi",
        "what is masked as a whole: a token, a word with all its pieces (whole_word), a span of words (SpanBERT), an "
        "n-gram of electra build-table (pmi)",
        choices=("token", "whole_word", "span", "pmi"),
    )
    pmi_vocab_file: str = free_hparam(
        "", "n-grams of mask_unit pmi; default <data_dir>/pmi_vocab.npz", place="read", heading="PMI-masking"
    )

    def derived(self) -> dict[str, Any]:
        default = os.path.join(self.data_dir, "pmi_vocab.npz")
        return super().derived() | {"pmi_vocab_file": self.pmi_vocab_file or default}
