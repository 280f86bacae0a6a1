"""Shared by the tests of prompts: a vocabulary of a few words, and a pre-trained model that has it."""

import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.pretraining_model import PretrainingModel

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *("yes", "no", "maybe", "good", "bad", "film", "the", "a", "dog", "cat", "barks", "sleeps", "it", "was", "runs"),
    *("##ing", "?", ",", ".", "what"),
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def coco_lm_in(path, folder, **hparams):
    """A pre-trained COCO-LM of random weights, and its folder."""
    given = {"vocab_size": len(SPECIAL + WORDS), "vocab_file": str(folder / "vocab.txt"), "electra_objective": False}
    given |= {"embedding_size": 16, "model_hparam_overrides": SIZES, "corrective_lm_objective": True}
    config = PretrainingConfig.from_dict(given | {"clm_head": "tied"} | hparams)
    model = PretrainingModel(config)
    tf.train.Checkpoint(model=model).save(str(path / "model.ckpt"))
    (path / "config.json").write_text(config.to_json())
    return model, path
