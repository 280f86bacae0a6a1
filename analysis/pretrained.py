"""[CLS] states of pre-trained models, without fine-tuning."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.checkpoints import find_checkpoint, warm_start
from electra_tf2.exchange.encoding import encode
from electra_tf2.exchange.formats.folders import read_config, vocabulary_of
from electra_tf2.exchange.network import graph_of_any_shape
from electra_tf2.pretrain.objectives.coco_lm import crop
from electra_tf2.pretrain.pretrain_data import evaluation_batches, find_problem, find_records
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError

_BATCH = 64
_SEED = tf.constant([20, 8])


class PretrainedModel:
    """A pre-trained model of ours with its weights.

    Args:
      model_dir: of a pre-training run: config.json and checkpoints.
      vocab_file, eval_tfrecords: where they are now; None: where they were.

    Raises:
      UserError: no configuration or checkpoint there.
    """

    def __init__(self, model_dir: str, vocab_file: str | None = None, eval_tfrecords: str | None = None) -> None:
        saved = read_config(model_dir)
        if saved is None:
            raise UserError(f"{model_dir} holds no pre-trained model of ours: there is no {model_dir}/config.json")
        config = PretrainingConfig.from_dict(saved)
        self.config = dataclasses.replace(
            config,
            vocab_file=vocab_file or vocabulary_of(model_dir, saved),
            eval_tfrecords=eval_tfrecords or config.eval_tfrecords,
        )
        self.tokenizer = WordpieceTokenizer(self.config.vocab_file, config.do_lower_case, config.do_strip_accents)
        if len(self.tokenizer) != config.vocab_size:
            raise UserError(
                f"{model_dir} was trained with {config.vocab_size} tokens, but {self.config.vocab_file} has "
                f"{len(self.tokenizer)}: --data-dir must hold its vocabulary"
            )
        self.model = PretrainingModel(self.config)
        missing = warm_start(self.model, model_dir).missing
        if missing:
            raise UserError(f"{model_dir}: the checkpoint lacks {', '.join(missing[:5])}")
        step = find_checkpoint(model_dir).rsplit("-", 1)[-1]
        self.step = int(step) if step.isdigit() else config.num_train_steps  # a folder without checkpoints is a result
        self._encode = graph_of_any_shape(self._encode_batch)
        self._pair = tf.function(self._view_pair, autograph=False)

    def _encode_batch(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        assert self.model.encoder is not None  # only a uniform generator alone has none, and it cannot be trained
        return tf.cast(self.model.encoder(input_ids, input_mask, segment_ids).sequence[:, 0], tf.float32)

    def sentence_states(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [N, H]: of "[CLS] sentence [SEP]", cut to the length of the pre-training records."""
        texts = [sentence.replace("\n", " ") for sentence in sentences]
        states = []
        for start in range(0, len(texts), _BATCH):
            encoded = encode(self.tokenizer, texts[start : start + _BATCH], self.config.max_seq_length)
            states.append(self._encode(*(tf.constant(part) for part in encoded)).numpy())
        return np.concatenate(states)

    def view_states(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """float32 [N, H] twice: `count` held-out records as the main network sees them, and crops of them.

        The first view is corrupted by the generator, as in pre-training, or the original one if there is no main
        network. Sequence contrast pulls the two together (COCO-LM, section 3.2).
        """
        records = find_records(self.config.eval_tfrecords, self.config, "eval_tfrecords")
        first, second = [], []
        try:
            for number, batch in enumerate(evaluation_batches(records, _BATCH).take(math.ceil(count / _BATCH))):
                views = self._pair(batch, tf.random.experimental.stateless_fold_in(_SEED, number))
                full = tf.reduce_sum(batch["input_mask"], -1).numpy() > 0
                first.append(views[0].numpy()[full])
                second.append(views[1].numpy()[full])
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            problem = find_problem(error, records)
            if problem is None:
                raise
            raise UserError(problem) from None
        return np.concatenate(first)[:count], np.concatenate(second)[:count]

    def _view_pair(self, batch: dict[str, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        masked, _ = self.model.prepare(batch, seed)
        if self.config.trains_main_network:
            states = self.model.forward(masked).states
            assert states is not None
            first = tf.cast(states[:, 0], tf.float32)
        else:
            first = self._encode_batch(masked.input_ids, masked.input_mask, masked.segment_ids)
        return first, self._encode_batch(*crop(self.config, masked))
