"""Every hparam of fine-tuning: electra_tf2/configure_finetuning.py."""

from electra_tf2.configure_finetuning import FinetuningConfig

__all__ = ["FinetuningConfig"]
