"""Every hparam of pre-training: electra_tf2/configure_pretraining.py."""

from electra_tf2.configure_pretraining import PretrainingConfig

__all__ = ["PretrainingConfig"]
