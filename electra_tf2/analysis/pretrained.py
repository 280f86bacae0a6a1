"""Vectors of [CLS] of pre-trained models, without fine-tuning, and the sentences to compare them on."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from electra_tf2.analysis.request import Request
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.corpus.encoding import encode
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.classification.reading import read_rows
from electra_tf2.finetune.classification.targets import Scale
from electra_tf2.finetune.classification.tasks import TextTask
from electra_tf2.finetune.task import find_file
from electra_tf2.finetune.tasks.built_in import BUILT_IN
from electra_tf2.formats.checkpoints import find_checkpoint, warm_start
from electra_tf2.formats.folders import VOCABULARY, read_config, vocabulary_of
from electra_tf2.inference.network import graph_of_any_shape
from electra_tf2.pretrain.objectives.coco_lm import crop
from electra_tf2.pretrain.pretrain_data import evaluation_batches, find_problem, find_records
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError

_BATCH = 64
_SEED = tf.constant([20, 8])


class PretrainedModel:
    """Generator and main network of a pre-training run, with its weights.

    Args:
      model_dir: of a pre-training run: config.json and checkpoints.
      vocab_file, eval_tfrecords: paths, where these files have been moved since.

    Raises:
      UserError: no configuration or checkpoint there.
    """

    def __init__(self, model_dir: str, vocab_file: str | None = None, eval_tfrecords: str | None = None) -> None:
        saved = read_config(model_dir)
        if saved is None:
            raise UserError(f"{model_dir} holds no pre-trained model of ours: there is no {model_dir}/config.json")
        if "task_names" in saved:
            raise UserError(f"{model_dir} is fine-tuned; name the pre-trained model that it began with")
        saved.pop("teacher", None)  # read for losses alone, and there are none here
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
        lacking = [name for name in missing if not name.startswith("generator")]
        if lacking:
            raise UserError(f"{model_dir}: the checkpoint lacks {', '.join(lacking[:5])}")
        self.without_generator = model_dir if missing else ""
        step = find_checkpoint(model_dir).rsplit("-", 1)[-1]
        self.step = int(step) if step.isdigit() else config.num_train_steps  # a folder without checkpoints is a result
        self._encode = graph_of_any_shape(self._encode_batch)
        self._pair = tf.function(self._view_pair, autograph=False)

    def _encode_batch(self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> tf.Tensor:
        assert self.model.encoder is not None  # only a uniform generator alone has none, and it cannot be trained
        return tf.cast(self.model.encoder(input_ids, input_mask, segment_ids).sequence[:, 0], tf.float32)

    def sentence_states(self, sentences: Sequence[str]) -> np.ndarray:
        """float32 [N, H], vectors of [CLS] of "[CLS] sentence [SEP]", cut to the length of the pre-training records."""
        texts = [sentence.replace("\n", " ") for sentence in sentences]
        states = []
        for start in range(0, len(texts), _BATCH):
            encoded = encode(self.tokenizer, texts[start : start + _BATCH], self.config.max_seq_length)
            states.append(self._encode(*(tf.constant(part) for part in encoded)).numpy())
        return np.concatenate(states)

    def view_states(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """float32 [N, H] twice, of `count` held-out records as the main network sees them, and of crops of them.

        The generator corrupts the first view, as in pre-training; without a main network it is the original text.
        Sequence contrast pulls the two together (COCO-LM, section 3.2).

        Raises:
          UserError: the generator was left out of the model's folder.
        """
        if self.without_generator:
            raise UserError(f"{self.without_generator} holds no generator, which this analysis needs")
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


@functools.cache
def pretrained(request: Request, name: str) -> PretrainedModel:
    """Loads a model, once.

    Its held-out records are those of the data folder, if there are any, and so is its vocabulary if it has none.
    """
    folder, records = request.folder(name), request.data_dir / "pretrain_tfrecords"
    own, vocab = folder / VOCABULARY, request.data_dir / VOCABULARY
    return PretrainedModel(
        str(folder),
        str(vocab) if vocab.is_file() and not own.is_file() else None,
        str(records / "dev_data.tfrecord*") if records.is_dir() else None,
    )


@functools.cache
def similar_sentences(request: Request) -> tuple[list[str], list[str]]:
    """The two sides of STS-B's pairs with the full score, at most `num_pairs`."""
    data, spec = request.data_dir / "finetuning_data", BUILT_IN["sts"].spec
    assert spec is not None and spec.value_range is not None
    folders = [data / name for name in ("sts", *spec.folders)]
    scale, pairs = Scale(*spec.value_range), []
    for split in ("dev", "train"):
        path = find_file(folders, split, (), TextTask.endings)
        for row in read_rows(path, spec.columns, spec.json_columns):
            if scale.checked(row.label, f"{path}, line {row.line}") == scale.high:
                pairs.append(row.texts)
    pairs = pairs[: request.num_pairs]
    if len(pairs) < 2:
        raise UserError(f"{folders[0]} has {len(pairs)} pair(s) with the score {scale.high:g}; at least 2 are needed")
    return [first for first, _ in pairs], [second for _, second in pairs]


@functools.cache
def similar_states(request: Request, name: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 [N, H] twice, vectors of [CLS] of the two sides of the similar sentences."""
    model = pretrained(request, name)
    first, second = similar_sentences(request)
    return model.sentence_states(first), model.sentence_states(second)
