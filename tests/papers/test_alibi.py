"""ALiBi: the published slopes, and an encoder against its definition."""

from collections.abc import Mapping

import numpy as np
import pytest

from electra_tf2.model.architecture import Architecture
from electra_tf2.model.encoder import Encoder
from electra_tf2.papers.alibi.config import Config, slopes
from tests.model import encoder_reference


class Linear(encoder_reference.Scheme):
    embedded = False

    def bias(self, a: Architecture, weights: Mapping[str, np.ndarray], head: int, i: int, j: int) -> float:
        return -abs(i - j) * (1 / 16, 1 / 256)[head]  # of two heads


def test_the_published_slopes() -> None:
    """Slopes of 8 heads as in the paper, and of a number that is no power of two as in its authors' code."""
    eight = [2.0**-n for n in range(1, 9)]
    assert slopes(8) == eight
    assert slopes(12) == pytest.approx([*eight, *(2.0 ** -(n + 0.5) for n in range(4))])
    assert slopes(1) == [2.0**-8]


@pytest.mark.parametrize("norm_style", ["post", "pre"])
def test_an_encoder_equals_its_definition(norm_style: str) -> None:
    encoder_reference.compared_with(Encoder("electra", encoder_reference.sizes("alibi", norm_style)), Linear())


def test_it_is_compiled_in_bfloat16_and_reads_any_length() -> None:
    encoder_reference.compiled_in_bfloat16(encoder_reference.sizes("alibi"))
    encoder_reference.any_length(Encoder("electra", encoder_reference.sizes("alibi")))


def test_no_length_is_too_long() -> None:
    overrides = {"relative_positions": "alibi", "max_position_embeddings": 16}
    assert Config.from_dict({"max_seq_length": 64, "model_hparam_overrides": overrides})
