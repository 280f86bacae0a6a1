"""Inference from Python: `load` opens a model of any format, `Model` runs it.

`import electra_tf2` exports the names of `__all__`; docs/python.md shows them. A model reads up to `max_length`
tokens. B batch, L length, H hidden.
"""

import itertools
import os
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import tensorflow as tf

from electra_tf2.corpus.encoding import (
    Row,
    Text,
    encode_rows,
    text_list,
    values_at_tokens,
    values_in_batches,
    windows_of,
)
from electra_tf2.corpus.tokenization import Located, undivided
from electra_tf2.corpus.unknown_tokens import warn_of_unknown
from electra_tf2.corpus.vocabulary import MASK
from electra_tf2.files.reading import read_json
from electra_tf2.finetune.trained_folder import TASKS
from electra_tf2.formats.folders import SCORES, locate_model, models
from electra_tf2.formats.joining import with_generator
from electra_tf2.formats.readers import find_model, read_model
from electra_tf2.formats.stored_model import Hints, StoredModel
from electra_tf2.inference.examples_in_memory import column_names, rows_in
from electra_tf2.inference.model_config import config_of, make_network, pooling_of, with_config
from electra_tf2.inference.network import EncoderModel, assign, graph_of_any_shape
from electra_tf2.inference.return_types import Answer, Replaced, States, Suggestion
from electra_tf2.inference.scoring import Scorer
from electra_tf2.training.shared_hparams import PRECISIONS
from electra_tf2.util.errors import UserError, shown
from electra_tf2.util.progress import counted

if TYPE_CHECKING:
    from electra_tf2.inference.predictor import Predictor

__all__ = ["Answer", "Model", "Replaced", "States", "Suggestion", "UserError", "load", "models"]

_BATCH = 32
_process: int | None = None  # id of the process in which the first model was made


def _check_process() -> None:
    """Raises UserError in a process that was forked from one with models.

    TensorFlow's threads are not copied to a forked process, so that the first call would wait for ever.
    """
    if _process not in (None, os.getpid()):
        raise UserError(
            "this process was forked from one that had loaded a model, whose threads do not come along: load models "
            "in each process (gunicorn without --preload), or start processes by multiprocessing's spawn"
        )


# Loading.


def load(
    path: str | os.PathLike[str],
    *,
    generator: str | os.PathLike[str] | None = None,
    vocab_file: str | None = None,
    num_attention_heads: int | None = None,
    pairs: bool = False,
    precision: str = "float32",
) -> "Model":
    """Loads a model.

    Args:
      path: a pre-training run or a trial of fine-tuning, a self-contained folder, a Hugging Face directory (ELECTRA,
        BERT or ModernBERT), a TF1 checkpoint of the original or a checkpoint of tf-models' encoder; or the name of a
        shipped model (`models`).
      generator: path of the generator, for a discriminator that comes without one.
      vocab_file, num_attention_heads: for a checkpoint whose files lack them; default: vocab.txt beside it, width / 64.
      pairs: True if a classifier of Hugging Face reads two texts. Its files do not tell.
      precision: type of activations and matrix products, "float32", "bfloat16" or "float16"; `predict`
        computes in that of its run.

    Raises:
      UserError: there is no model that can be read (the message names what was looked for), an argument is given that
        the model's own files hold, or the precision is unknown.
    """
    _check_process()
    if precision not in PRECISIONS:
        raise UserError(f"precision is one of {', '.join(PRECISIONS)}, not {shown(precision)}")
    _check_path("path", path)
    if generator is not None:
        _check_path("generator", generator)
    source = read_model(locate_model(os.fspath(path)), Hints(vocab_file, num_attention_heads, pairs=pairs))
    options: dict[str, Any] = {"num_attention_heads": num_attention_heads, "pairs": pairs, "precision": precision}
    # Absolute paths: a copy may be loaded in another working directory.
    if vocab_file:
        options["vocab_file"] = os.path.abspath(vocab_file)
    if generator is not None:
        generator_path = locate_model(os.fspath(generator))
        source = _with_generator_at(generator_path, source, vocab_file)
        options["generator"] = os.path.abspath(generator_path)
    model = Model(source, precision)
    model._load_options = (os.path.abspath(source.path), options)
    return model


def _with_generator_at(path: str, source: StoredModel, vocab_file: str | None) -> StoredModel:
    """Adds the generator at a path to a discriminator.

    Args:
      vocab_file: of both, if the generator's files hold none.
    """
    hints = Hints(vocab_file)
    if "vocab_file" in find_model(path).hints_in_files:
        hints = Hints()
    return with_generator(source, with_config(read_model(path, hints)))


def _check_path(name: str, path: object) -> None:
    if not isinstance(path, (str, os.PathLike)):
        raise UserError(f"load: {name} is a path or the name of a shipped model, not {shown(path)}")


def _load_again(path: str, options: dict[str, Any]) -> "Model":
    return load(path, **options)


class Model:
    """A loaded model; `load` makes it.

    source: the stored model, with weights under our names and the vocabulary. config: the configuration of the run that
    trained it, or one that describes its network. tokenizer: text to wordpieces. max_length: tokens of an input, at
    most, special ones included: 512, or fewer where the model has fewer positions.
    """

    def __init__(self, source: StoredModel, precision: str = "float32") -> None:
        global _process
        _check_process()
        _process = os.getpid()
        self.source = source
        self.precision = precision
        self.config = config_of(source)
        self.tokenizer = source.tokenizer()
        self.network = make_network(source, precision)
        self.max_length = source.max_length
        self._load_options: tuple[str, dict[str, Any]] | None = None  # arguments of `load`
        self._states = graph_of_any_shape(self.network.states)
        self._replaced = graph_of_any_shape(lambda *inputs: tf.nn.sigmoid(self.network.replaced_logits(*inputs)))
        self._fill = graph_of_any_shape(self.network.token_logits)
        self._vectors: dict[str, Any] = {}  # pooling -> graph
        self._scorers: dict[tuple[str, float | None], Scorer] = {}
        self._predictor: Predictor | None = None

    def __reduce__(self) -> Any:
        """A copy or a pickle holds the arguments of `load`, and loads the model anew."""
        if self._load_options is None:
            raise UserError(f"{self!r} was not made by load, so it cannot be copied or pickled")
        return _load_again, self._load_options

    def __repr__(self) -> str:
        a = self.source.architecture
        layers = counted(a.num_hidden_layers, "layer")
        return f"<{self.source.origin}: {layers} of {a.hidden_size}, {len(self.tokenizer):,} tokens>"

    @property
    def scores(self) -> dict[str, Any]:
        """Scores of a fine-tuned model: task -> split -> metric -> value, as in results files.

        Of a pre-trained one the metrics of its run's last evaluation; {} if it has none.
        """
        path = self.source.folder / SCORES
        is_trial = (self.source.folder / TASKS).is_file()
        if is_trial and path.is_file():
            return read_json(path, "scores")["scores"]
        return {} if self.source.is_fine_tuned else dict(self.source.scores)

    @overload
    def states(self, texts: str) -> States: ...  # type: ignore[overload-overlap]

    @overload
    def states(self, texts: Sequence[Text]) -> list[States]: ...

    def states(self, texts: str | Sequence[Text]) -> States | list[States]:
        """The vectors of a text, or of several texts or pairs of texts. Longer ones than `max_length` are cut.

        Warns:
          LongTexts: some were cut. UnknownTokens: some tokens are [UNK].
        """
        _check_process()
        rows = encode_rows(self.tokenizer, texts, self.max_length)
        self._warn_of_unknown(rows, texts)
        all_vectors = values_at_tokens(self._states, rows, self.tokenizer.special, _BATCH)
        states = []
        for row, vectors in zip(rows, all_vectors, strict=True):
            tokens = self.tokenizer.convert_ids_to_tokens(row.input_ids)
            states.append(States(tokens, vectors, vectors[0]))
        return states[0] if isinstance(texts, str) else states

    @property
    def pooling(self) -> str:
        """The default of `embed`: the pooling that the model was trained with, or else "mean"."""
        return pooling_of(self.source)

    @property
    def width(self) -> int:
        """Length of the vectors that `embed` gives."""
        return self.network.width

    def embed(self, texts: str | Sequence[Text], pooling: str | None = None) -> np.ndarray:
        """Vectors of texts, float32 [texts, width] of length 1, so that the product of two is their cosine.

        Args:
          texts: a text, whose vector [width] is returned, or several; longer ones are cut.
          pooling: "mean" of all tokens' states, or "cls", that of [CLS]; default: `Model.pooling`.

        Raises:
          UserError: there is no such pooling.

        Warns:
          LongTexts: some were cut. UnknownTokens: some tokens are [UNK].
        """
        if pooling is None:
            pooling = self.pooling
        if pooling not in self.network.poolings:
            raise UserError(f"embed: pooling is one of {', '.join(self.network.poolings)}, not {shown(pooling)}")
        if pooling not in self._vectors:
            self._vectors[pooling] = graph_of_any_shape(partial(self.network.text_vectors, pooling=pooling))
        _check_process()
        rows = encode_rows(self.tokenizer, texts, self.max_length)
        self._warn_of_unknown(rows, texts)
        embedded = np.zeros([len(rows), self.width], np.float32)
        for indices, vectors, _ in values_in_batches(self._vectors[pooling], rows, self.tokenizer.special, _BATCH):
            embedded[indices] = vectors
        return embedded[0] if isinstance(texts, str) else embedded

    @overload
    def replaced(self, texts: str) -> list[Replaced]: ...

    @overload
    def replaced(self, texts: list[str] | tuple[str, ...]) -> list[list[Replaced]]: ...

    def replaced(self, texts: str | list[str] | tuple[str, ...]) -> list[Replaced] | list[list[Replaced]]:
        """The probability of each wordpiece to be a replacement (ELECTRA, section 2). Special tokens are left out.

        A text longer than the model reads is read in windows that overlap by half. Each wordpiece is judged in the
        window where it has the most context.

        Args:
          texts: a text; or several, for a list of lists.

        Raises:
          UserError: the model does not detect replaced tokens.

        Warns:
          UnknownTokens: some tokens are [UNK].
        """
        _check_process()
        if self.network.detector is None:
            raise UserError(f"{self!r} does not detect replaced tokens: an ELECTRA discriminator is needed")
        all_texts = text_list(texts)
        for text in all_texts:
            if not isinstance(text, str):
                raise UserError(f"replaced: texts are needed, got {shown(text)}")
        special = self.tokenizer.special
        tokenized = self.tokenizer.located([undivided(text) for text in all_texts])
        warn_of_unknown(self.tokenizer, [text.ids for text in tokenized], [[text] for text in all_texts])
        # The windows of all texts are computed together. Their results come in the same order.
        windows_by_text = [windows_of(text.ids, special, self.max_length) for text in tokenized]
        rows = [window.row for window in itertools.chain.from_iterable(windows_by_text)]
        window_probabilities = iter(values_at_tokens(self._replaced, rows, special, _BATCH))
        results = []
        for text, windows in zip(tokenized, windows_by_text, strict=True):
            probabilities: list[float] = []
            for window in windows:
                without_cls = next(window_probabilities)[1:]
                first = window.kept.start - window.start
                end = window.kept.stop - window.start
                probabilities += without_cls[first:end].tolist()
            results.append(self._replaced_pieces(text, probabilities))
        return results[0] if isinstance(texts, str) else results

    def _replaced_pieces(self, text: Located, probabilities: Sequence[float]) -> list[Replaced]:
        tokens = self.tokenizer.convert_ids_to_tokens(text.ids)
        pieces = []
        for token, probability, (start, end) in zip(tokens, probabilities, text.spans.tolist(), strict=True):
            pieces.append(Replaced(token, probability, start, end))
        return pieces

    @overload
    def fill(self, texts: str, top: int = 5) -> list[list[Suggestion]]: ...

    @overload
    def fill(self, texts: list[str] | tuple[str, ...], top: int = 5) -> list[list[list[Suggestion]]]: ...

    def fill(
        self, texts: str | list[str] | tuple[str, ...], top: int = 5
    ) -> list[list[Suggestion]] | list[list[list[Suggestion]]]:
        """The `top` most probable wordpieces for each [MASK] in a text, in order.

        Args:
          texts: a text; or several, for a list with an entry for each.

        Raises:
          UserError: a text has no [MASK], `top` is out of range, or the model has no masked language model.

        Warns:
          UnknownTokens: some tokens are [UNK].
        """
        _check_process()
        if not 1 <= top <= len(self.tokenizer):
            raise UserError(f"fill: top is between 1 and the {len(self.tokenizer):,} tokens, not {top}")
        all_texts = text_list(texts)
        rows = [self._row_with_masks(text) for text in all_texts]
        warn_of_unknown(self.tokenizer, rows, [[text] for text in all_texts])
        suggestions = [self._suggestions(row, top) for row in rows]
        return suggestions[0] if isinstance(texts, str) else suggestions

    def _row_with_masks(self, text: object) -> np.ndarray:
        """int32 [tokens], the ids of a text with [MASK]s, special tokens included."""
        if not isinstance(text, str):
            raise UserError(f"fill: a text is needed, got {shown(text)}")
        if MASK not in text:
            raise UserError(f"fill: there is no {MASK} in {shown(text, 60)}")
        special = self.tokenizer.special
        parts = text.split(MASK)
        if self.tokenizer.mask_takes_blank:
            parts[:-1] = [part.rstrip() for part in parts[:-1]]
        row = [special.cls]
        for part in self.tokenizer.pieces(parts):
            row += [*part, special.mask]
        row[-1] = special.sep  # in the place of the [MASK] after the last part
        if len(row) > self.max_length:
            raise UserError(f"fill: the text has {len(row)} tokens, the model reads {self.max_length}")
        return np.array(row, np.int32)

    def _suggestions(self, row: np.ndarray, top: int) -> list[list[Suggestion]]:
        input_ids = tf.constant(row[np.newaxis])
        masks = np.flatnonzero(row == self.tokenizer.special.mask)
        logits = self._fill(input_ids, tf.ones_like(input_ids), tf.zeros_like(input_ids))[0]
        best = tf.math.top_k(tf.nn.softmax(tf.gather(logits, masks)), top)
        suggestions = []
        for ids, probabilities in zip(best.indices.numpy(), best.values.numpy().tolist(), strict=True):
            best_first = []
            for token, probability in zip(self.tokenizer.convert_ids_to_tokens(ids), probabilities, strict=True):
                best_first.append(Suggestion(token, probability))
            suggestions.append(best_first)
        return suggestions

    def score(
        self,
        texts: str | Sequence[str],
        batch_size: int = _BATCH,
        mask_prob: float | None = None,
        method: str = "likelihood",
    ) -> Any:
        """Scores texts by the sum over their wordpieces of log p(token | the other tokens).

        Electric: minus its energies, in one pass for each text (Electric, section 2.5). BERT: each token is masked in
        turn. ELECTRA: the generator's probability and the discriminator's verdict are combined (ELECTRA, appendix G);
        a discriminator that learned from masked positions alone (disc_tokens masked) gives the probability itself. Of a
        longer text, the first `max_length` tokens count.

        Args:
          mask_prob: share of tokens that were masked in an ELECTRA's pre-training; default: the run's, or that of the
            paper's model of this size.
          method: "likelihood"; or "detector", the sum of log D(original), in one pass for each text, for any
            discriminator. It ranks texts and is no log-likelihood.

        Returns:
          float32 [texts]; a number for a single text.

        Raises:
          UserError: the model gives no probabilities, or mask_prob is no share.

        Warns:
          LongTexts: some were cut. UnknownTokens: some tokens are [UNK].
        """
        _check_process()
        rows = encode_rows(self.tokenizer, texts, self.max_length)
        self._warn_of_unknown(rows, texts)
        scores = self.scorer(method, mask_prob).scores(rows, batch_size)
        return scores[0] if isinstance(texts, str) else scores

    def scorer(self, method: str = "likelihood", mask_prob: float | None = None) -> Scorer:
        """The scorer that `score` uses. Its `note` warns of unusual scores. Arguments and errors as in `score`."""
        key = (method, mask_prob)
        if key not in self._scorers:
            self._scorers[key] = Scorer(self.network, self.tokenizer.special, self.config, method, mask_prob)
        return self._scorers[key]

    @overload
    def predict(
        self,
        texts: str | dict[str, Any] | tuple[str, str],
        task: str | None = None,
        text_column: str | Sequence[str] | None = None,
    ) -> Answer: ...

    @overload
    def predict(
        self, texts: Sequence[Any], task: str | None = None, text_column: str | Sequence[str] | None = None
    ) -> list[Answer]: ...

    def predict(
        self,
        texts: str | dict[str, Any] | tuple[str, str] | Sequence[Any],
        task: str | None = None,
        text_column: str | Sequence[str] | None = None,
    ) -> Answer | list[Answer]:
        """The answers of a fine-tuned model: labels, tags or spans with scores, as `electra predict` writes them.

        It computes in the precision of its run; in float32 if that is bfloat16 and this processor has no units for it.

        Args:
          texts: a text, a tuple of two for a task of pairs (two sentences; question and context), or a dict like a
            line of the task's .jsonl files; or a list of these, or of lists of words (tagging); or an array of two
            columns for pairs; or a data frame with the task's columns.
          task: name of the task, for a model that learned several; default: the first.
          text_column: the column of the texts, or the two of pairs, if their names are others than in training.

        Raises:
          UserError: the model is not fine-tuned, or a text does not fit its task.

        Warns:
          LongTexts: some were cut. Tags and answers are found in windows of the whole text.
          UnknownTokens: some tokens are [UNK].
          UserWarning: some texts are empty, and their answers hold `error` alone; or a text is the name of a file.
        """
        _check_process()
        predictor = self._loaded_predictor()
        columns = column_names(text_column)
        is_single = predictor.reads_as_one(texts, task, columns)
        if isinstance(texts, str) and os.path.splitext(texts)[1] and os.path.isfile(texts):
            message = f"predict: {texts} is taken for a text, but a file is called so: `electra predict` labels files"
            warnings.warn(message, stacklevel=2)
        several = [texts] if is_single else rows_in(texts)
        answers = [Answer(**fields) for fields in predictor(several, task, columns)]
        if is_single:
            return answers[0]
        return answers

    def _loaded_predictor(self) -> "Predictor":
        """Makes what answers tasks, at the first call. Raises UserError: the model is not fine-tuned."""
        if self._predictor is None:
            from electra_tf2.inference.predictor import Predictor

            self._predictor = Predictor(self.source, self.tokenizer)
        return self._predictor

    def evaluate(
        self,
        texts: Any,
        labels: Iterable[Any] | None = None,
        *,
        task: str | None = None,
        text_column: str | Sequence[str] | None = None,
        label_column: str | None = None,
    ) -> dict[str, float]:
        """Scores a fine-tuned model on texts with labels.

        Args:
          texts: texts, pairs of texts or lists of words, with `labels`; or a data frame, a list of dicts or the path of
            a file, with columns that are called as those of the training data.
          labels: one for each text, a list of tags for each list of words. Texts without one, and labels without a
            text, are left out and counted. An answer that is None or "" says that the context has none.
          task: name of the task, for a model that learned several; default: the first.
          text_column: the column of the texts, or the two of pairs, if their names are others than in training.
          label_column: the column of the labels, if its name is another than in training.

        Returns:
          Metric -> value, as a split of `scores` has them: shares in percent, and the mean loss.

        Raises:
          UserError: the model is not fine-tuned, or texts or labels do not fit its task.

        Warns:
          LongTexts: some texts were cut.
          UnknownTokens: some tokens are [UNK].
        """
        _check_process()
        from electra_tf2.inference.scores_of_examples import scores_of_examples

        text_columns = column_names(text_column)
        given_label = "" if label_column is None else str(label_column)
        return scores_of_examples(self._loaded_predictor(), texts, labels, task, text_columns, given_label)

    def keras(self) -> EncoderModel:
        """The encoder as a `tf_keras.Model`, from {"input_ids", "input_mask", "segment_ids"} to states [B, L, H].

        It starts with this model's weights. `trainable`, `training=`, `fit`, `summary` and saving work as usual.
        """
        _check_process()
        model = EncoderModel.from_architecture(self.source.architecture, self.precision)
        assign(model.trainable_variables, self.source.weights)
        return model

    def _warn_of_unknown(self, rows: Sequence[Row], texts: str | Sequence[Text]) -> None:
        """Warns of rows with unknown tokens, at the line that called the caller."""
        texts_by_row = []
        for text in text_list(texts):
            texts_by_row.append([text] if isinstance(text, str) else text)
        warn_of_unknown(self.tokenizer, [row.input_ids for row in rows], texts_by_row, stacklevel=4)
