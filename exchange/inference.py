"""The Python door: a model from anywhere, ready to be used.

    import electra_tf2 as electra

    model = electra.load("data/models/electra_small")     # a run, a folder of ours, a Hugging Face directory, TF1
    model.states(["One sentence.", ("A pair", "of two")])  # vectors of tokens and sentences
    model.replaced("The chef eight the meal.")             # which tokens look wrong
    model.fill("The capital of France is [MASK].")         # what a generator, or BERT, would say
    model.score(["A sentence.", "Sentence a."])            # pseudo-log-likelihoods
    model.predict(["A text to label."])                    # with a fine-tuned model
    model.keras()                                          # the network, to put a head on and fit

docs/python.md says what each gives and needs. A model reads up to 512 tokens; B is the batch, L the length, H the
width of its layers.
"""

from electra_tf2.util.environment import before_tensorflow

before_tensorflow()

from collections.abc import Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from electra_tf2.configure_finetuning import FinetuningConfig  # noqa: E402
from electra_tf2.configure_pretraining import PretrainingConfig  # noqa: E402
from electra_tf2.corpus.tokenization import WordpieceTokenizer  # noqa: E402
from electra_tf2.corpus.vocabulary import MASK  # noqa: E402
from electra_tf2.exchange.encoding import Encoded, Text, encode  # noqa: E402
from electra_tf2.exchange.formats.folders import released  # noqa: E402
from electra_tf2.exchange.keras_model import EncoderModel  # noqa: E402
from electra_tf2.exchange.network import Network, graph_of_any_shape  # noqa: E402
from electra_tf2.exchange.scoring import Scorer, check_scorable  # noqa: E402
from electra_tf2.exchange.sources import Model as Source  # noqa: E402
from electra_tf2.exchange.sources import Told, check_told, read_model, with_generator  # noqa: E402
from electra_tf2.training.hparams import PRECISIONS  # noqa: E402
from electra_tf2.util.errors import UserError, shown  # noqa: E402

__all__ = ["Model", "Replaced", "States", "Suggestion", "UserError", "load"]

_BATCH = 32
_LENGTHS = 16  # inputs are padded to a multiple, so that few lengths are traced


class States(NamedTuple):
    """What a text became.

    tokens: wordpieces, [CLS] and [SEP] included. vectors: float32 [tokens, H], the last layer. sentence: float32 [H],
    the vector of [CLS].
    """

    tokens: list[str]
    vectors: np.ndarray
    sentence: np.ndarray


class Replaced(NamedTuple):
    """A wordpiece and the probability that it stands where another belongs."""

    token: str
    probability: float


class Suggestion(NamedTuple):
    """A wordpiece for a [MASK], and its probability."""

    token: str
    probability: float


def load(
    path: str,
    *,
    generator: str | None = None,
    vocab_file: str | None = None,
    num_attention_heads: int | None = None,
    pairs: bool = False,
    precision: str = "float32",
) -> "Model":
    """Loads a model.

    Args:
      path: the name of a model that comes with the project ("electra_evening"), a pre-training run or a trial of
        fine-tuning, a self-contained folder, a Hugging Face directory (ELECTRA or BERT), a TF1 checkpoint of the
        original or a checkpoint of tf-models' encoder.
      generator: where the generator of a discriminator without one is, likewise.
      vocab_file, num_attention_heads: of a checkpoint that does not say them; default: vocab.txt beside it, width / 64.
      pairs: whether a classifier of Hugging Face, whose files do not say so, reads two texts.
      precision: "float32", "bfloat16" or "float16", of activations and matrix products.

    Raises:
      UserError: nothing is there that can be read (says what was looked for), an argument that the model's own files
        answer, or a precision that there is not.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision is one of {', '.join(PRECISIONS)}, not {shown(precision)}")
    path = path if Path(path).exists() else released(path) or path
    told = Told(vocab_file, num_attention_heads, pairs=pairs)
    if generator is None:
        check_told(path, told)
    source = read_model(path, told)
    if generator is not None:
        source = with_generator(source, read_model(generator, told))
    return Model(source, precision)


class Model:
    """A loaded model; `load` makes it.

    source: configuration, weights under our names and vocabulary. tokenizer: text to wordpieces.
    """

    def __init__(self, source: Source, precision: str = "float32") -> None:
        self.source = source
        self.tokenizer = WordpieceTokenizer(source.tokens, *source.casing)
        self.network = Network(source.architecture, source.generator_architecture, source.weights, precision)
        self.max_length = min(512, source.architecture.max_position_embeddings)
        self._states = graph_of_any_shape(self.network.states)
        self._replaced = graph_of_any_shape(lambda *inputs: tf.nn.sigmoid(self.network.replaced_logits(*inputs)))
        self._fill = graph_of_any_shape(self.network.token_logits)
        self._predictor: Any = None

    def __repr__(self) -> str:
        a = self.source.architecture
        return (
            f"<{self.source.origin}: {a.num_hidden_layers} layers of {a.hidden_size}, {len(self.tokenizer):,} tokens>"
        )

    @property
    def config(self) -> PretrainingConfig | FinetuningConfig:
        """The configuration of the run that made it, or one that describes the network."""
        return self.source.config

    def states(self, texts: Sequence[Text]) -> list[States]:
        """The vectors of texts, or of pairs of texts; longer ones are cut at 512 tokens."""
        result = []
        for encoded, vectors in self._batches(texts, self._states):
            for row, length in enumerate(encoded.lengths):
                kept = vectors[row, :length]
                result.append(States(self._tokens(encoded, row), kept, kept[0]))
        return result

    def replaced(self, text: str) -> list[Replaced]:
        """How likely each wordpiece of a text is a replacement, special tokens left out (ELECTRA, section 2).

        Raises:
          UserError: the model does not detect replaced tokens.
        """
        self._require_detector()
        [(encoded, probabilities)] = self._batches([text], self._replaced)
        tokens = self._tokens(encoded, 0)[1:-1]
        return [Replaced(token, float(p)) for token, p in zip(tokens, probabilities[0, 1:], strict=False)]

    def fill(self, text: str, top: int = 5) -> list[list[Suggestion]]:
        """For each [MASK] in a text, in order, the `top` most probable wordpieces.

        Raises:
          UserError: there is no [MASK] in it, `top` is out of range, or the model has no masked language model.
        """
        if MASK not in text:
            raise UserError(f"fill: there is no {MASK} in {text!r}")
        if not 1 <= top <= len(self.tokenizer):
            raise UserError(f"fill: top is between 1 and the {len(self.tokenizer):,} tokens, not {top}")
        special = self.tokenizer.special
        ids, lengths = self.tokenizer.tokenize([part.encode("utf-8", "ignore") for part in text.split(MASK)])
        row = [special.cls]
        for part in np.split(ids, np.cumsum(lengths)[:-1]):
            row += [*part, special.mask]
        row[-1] = special.sep
        if len(row) > self.max_length:
            raise UserError(f"fill: the text has {len(row)} tokens, the model reads {self.max_length}")
        input_ids = tf.constant([row], tf.int32)
        inputs = input_ids, tf.ones_like(input_ids), tf.zeros_like(input_ids)
        masks = [place for place, token in enumerate(row) if token == special.mask]
        logits = tf.gather(self._fill(*inputs)[0], masks)
        best = tf.math.top_k(tf.nn.softmax(logits), top)
        return [
            [Suggestion(self.tokenizer.vocab[token], float(p)) for token, p in zip(tokens, probabilities, strict=True)]
            for tokens, probabilities in zip(best.indices.numpy(), best.values.numpy(), strict=True)
        ]

    def score(self, texts: Sequence[str], batch_size: int = _BATCH, mask_prob: float | None = None) -> np.ndarray:
        """Pseudo-log-likelihoods, float32 [texts]: the sum over wordpieces of log p(token | the others).

        Electric's are minus its energies, one pass a text (Electric, section 2.5). BERT's come from masking each token
        in turn. ELECTRA's combine its generator's probability with the discriminator's verdict (ELECTRA, appendix G).
        Of a longer text, the first 512 tokens count.

        Args:
          mask_prob: share of tokens that were masked in an ELECTRA's pre-training; default: the run's, or that of the
            paper's model of this size.

        Raises:
          UserError: the model is none of these, or mask_prob is no share.
        """
        if mask_prob is None:
            mask_prob = getattr(self.config, "mask_prob", 0.15)
        if not 0 < mask_prob < 1:
            raise UserError(f"mask_prob is a share of tokens, between 0 and 1, not {mask_prob:g}")
        check_scorable(self.config)
        electric = getattr(self.config, "electric_objective", True)
        scorer = Scorer(self.network, self.tokenizer.special, mask_prob, batch_size, electric)
        return scorer.scores(self._rows(texts))

    def predict(self, texts: Sequence[Any], task: str | None = None) -> list[dict[str, Any]]:
        """The answers of a fine-tuned model: labels, tags or spans with scores, as --predict writes them.

        Args:
          texts: each a text, a pair of texts (two sentences; question and context), a list of words (tagging), or an
            object as a line of the task's .jsonl files.
          task: which of several that were learned together; default: the first.

        Raises:
          UserError: the model is not fine-tuned, or a text does not fit its task.
        """
        if self._predictor is None:
            from electra_tf2.finetune.predictor import Predictor

            self._predictor = Predictor(self.source, self.tokenizer)
        return self._predictor(texts, task)

    def keras(self) -> EncoderModel:
        """The encoder as a `tf_keras.Model` with these weights: {"input_ids", "input_mask", "segment_ids"} in, states
        [B, L, H] out. `trainable`, `training=`, `fit`, `summary` and saving work as with any other."""
        model = EncoderModel.from_architecture(self.source.architecture)
        model.assign(self.source.weights)
        return model

    def _require_detector(self) -> None:
        if self.network.detector is None:
            raise UserError(f"{self!r} does not detect replaced tokens: an ELECTRA discriminator is needed")

    def _batches(self, texts: Sequence[Text], function: Any) -> Iterator[tuple[Encoded, np.ndarray]]:
        for start in range(0, len(texts), _BATCH):
            encoded = encode(self.tokenizer, texts[start : start + _BATCH], self.max_length, _LENGTHS)
            yield encoded, function(*(tf.constant(part) for part in encoded)).numpy()

    def _rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of "[CLS] text [SEP]"."""
        encoded = encode(self.tokenizer, texts, self.max_length)
        return [encoded.input_ids[row, :length].tolist() for row, length in enumerate(encoded.lengths)]

    def _tokens(self, encoded: Encoded, row: int) -> list[str]:
        return self.tokenizer.convert_ids_to_tokens(encoded.input_ids[row, : encoded.lengths[row]])
