"""The start of a sentence encoder: vectors of wordpieces whose mean compares texts as TF-IDF does, in fewer numbers.

The table of a pre-trained model's word embeddings is whitened, which takes apart words that are alike because they
stand in like places (Su et al. 2021, over texts); random directions beside it keep apart those that are so still; each
row is weighted by how rare its wordpiece is (TF-IDF; Arora et al. 2017 weigh likewise). The lowest layers follow, whose
branches end in zeros: they change nothing until they are trained.

A layer norm would take a row's length away. So two further numbers bring each row to a mean of zero and one common
length, and the projection behind the pooling leaves them out.

What to train it with: `replaced_texts` replaces some words of a text by a generator's samples, ELECTRA's corruption of
text. A word that is likely in its place and is not the one that stood there is what vectors of sentences find hardest
to tell apart, so such texts are negatives.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.exchange.encoding import by_length, padded, rows_of
from electra_tf2.exchange.network import Network, graph_of_any_shape
from electra_tf2.exchange.sources import Model
from electra_tf2.util.errors import UserError
from electra_tf2.util.progress import Progress

_RANDOM_SHARE = 0.8  # length of the random part to that of the whitened one
_ROW_LENGTH = 10.0  # Adam's steps, whose size does not follow a weight's, are small beside it
_EMBEDDING_SCALE = 5.0  # gamma of the norm of embeddings, so that what layers learn to add is small at first
_LAYER = re.compile(r"/layer_(\d+)/")
TASK = "sentence_embedding"


def rarity(tokenizer: WordpieceTokenizer, texts: Sequence[str]) -> np.ndarray:
    """float64 [V], log of texts to texts that hold a wordpiece; 0 of special tokens."""
    ids, lengths = tokenizer.tokenize([text.encode() for text in texts])
    found = np.zeros(len(tokenizer))
    for row in np.split(ids, np.cumsum(lengths)[:-1]):
        found[np.unique(row)] += 1
    weights = np.log((1 + len(texts)) / (1 + found))
    weights[list(tokenizer.special[:5])] = 0
    return weights


def word_vectors(table: np.ndarray, weights: np.ndarray, width: int, seed: int) -> np.ndarray:
    """float64 [V, width], the weighted vectors of wordpieces, and in the last two columns what evens rows out.

    Args:
      table: [V, E], word embeddings, fewer than `width` - 2 numbers each or cut to them.
      weights: [V].
    """
    centred = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    room = width - 2
    white = (centred @ directions / np.sqrt(np.maximum(variances, 1e-12)))[:, -min(room, table.shape[1] - 2) :]
    parts = [white / np.linalg.norm(white, axis=1, keepdims=True)]
    if room > white.shape[1]:
        random = np.random.default_rng(seed).normal(size=[len(table), room - white.shape[1]])
        parts.append(_RANDOM_SHARE * random / np.linalg.norm(random, axis=1, keepdims=True))
    vectors = np.concatenate(parts, 1) * weights[:, np.newaxis]
    total, square = vectors.sum(1), (vectors**2).sum(1)
    length = 1.001 * np.sqrt((square + total**2 / 2).max())
    apart = np.sqrt((length**2 - square) / 2 - total**2 / 4)
    evened = np.stack([apart - total / 2, -apart - total / 2], 1)
    return np.concatenate([vectors, evened], 1) * (_ROW_LENGTH / length)


def encoder_of_words(source: Model, weights: np.ndarray, num_layers: int, seed: int) -> Model:
    """A model of the task sentence_embedding, from a pre-trained one and the rarity [V] of its wordpieces.

    Raises:
      UserError: the model has fewer layers, or not those that this start needs.
    """
    sizes = source.architecture
    if sizes.norm_style != "pre" or not 1 <= num_layers <= sizes.num_hidden_layers:
        raise UserError(
            f"{source.origin} has {sizes.num_hidden_layers} layers with norms of style {sizes.norm_style}: the "
            "start of a sentence encoder needs style pre, and takes 1 layer or more of those that there are"
        )
    width = sizes.hidden_size
    found: dict[str, np.ndarray] = {}
    for name, value in source.weights.items():
        layer = _LAYER.search(name)
        if not name.startswith("electra/") or "embeddings_project" in name:
            continue
        if layer is None:
            found[name] = _outside_of_layers(name, value, width)
        elif int(layer[1]) < num_layers:
            found[name] = np.zeros_like(value) if "output/dense" in name else value
    table = source.weights["electra/embeddings/word_embeddings"]
    found["electra/embeddings/word_embeddings"] = word_vectors(table, weights, width, seed).astype(np.float32)
    kernel = np.eye(width, dtype=np.float32)
    kernel[-2:] = 0
    scope = f"task_specific/{TASK}/projection"
    found |= {f"{scope}/kernel": kernel, f"{scope}/bias": np.zeros(width, np.float32)}
    hparams: dict[str, Any] = {
        "model_size": source.config.model_size,
        "model_hparam_overrides": source.config.model_hparam_overrides | {"num_hidden_layers": num_layers},
        "embedding_size": width,
        "vocab_size": len(source.tokens),
        "vocab_file": source.config.vocab_file,
        "do_lower_case": source.config.do_lower_case,
        "do_strip_accents": source.config.do_strip_accents,
        "task_names": [TASK],
        "embedding_projection": width,
    }
    config = FinetuningConfig.from_dict(hparams)
    return source._replace(config=config, weights=found, task_states={TASK: {}}, scores={}, is_run=True)


def _outside_of_layers(name: str, value: np.ndarray, width: int) -> np.ndarray:
    """A variable beside the layers: norms that only normalise; no embeddings of positions and segments."""
    if name.startswith("electra/embeddings/"):
        shape = [*value.shape[:-1], width]
        return np.full(shape, _EMBEDDING_SCALE if name.endswith("gamma") else 0.0, np.float32)
    if name.endswith(("gamma", "beta")):
        return np.full_like(value, float(name.endswith("gamma")))
    return value


_BATCH, _MAX_LENGTH = 256, 64  # texts of a pass; tokens of a text, of which more are left out


def replaced_texts(
    network: Network, tokenizer: WordpieceTokenizer, texts: Sequence[str], share: float, seed: int
) -> list[str]:
    """Texts as the tokenizer normalises them, with up to `share` of their wordpieces replaced, one at least.

    Raises:
      UserError: the network has no masked language model.
    """
    model = network.language_model
    if model is None:
        raise UserError("a model with a generator or a masked language model is needed to replace words")

    def sampled(ids: tf.Tensor, mask: tf.Tensor, segments: tf.Tensor, places: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        logits = model(tf.gather(network.filler(ids, mask, segments).sequence, places, batch_dims=1))
        uniform = tf.random.stateless_uniform(tf.shape(logits), noise, 1e-9, 1.0)
        return tf.argmax(logits - tf.math.log(-tf.math.log(uniform)), -1, tf.int32)  # a sample, by Gumbel's trick

    graph, random = graph_of_any_shape(sampled), np.random.default_rng(seed)
    rows, special = rows_of(tokenizer, texts, _MAX_LENGTH), tokenizer.special
    found = [""] * len(rows)
    with Progress("replacing words: text", len(rows)) as progress:
        for number, chosen in enumerate(by_length([len(row.input_ids) for row in rows], _BATCH)):
            inputs = padded([rows[place] for place in chosen], special)
            inside = np.arange(inputs.input_ids.shape[1]) < inputs.lengths[:, np.newaxis] - 1
            inside[:, 0] = False
            most = max(1, round(share * int(inside.sum(1).max())))
            order = np.argsort(np.where(inside, random.random(inside.shape), 2), 1)[:, :most].astype(np.int32)
            here = np.arange(len(chosen))[:, np.newaxis]
            used = np.arange(most) < random.integers(1, most + 1, [len(chosen), 1])
            used &= inside[here, order]
            masked = inputs.input_ids.copy()
            masked[here, order] = np.where(used, special.mask, masked[here, order])
            noise = np.array([seed, number], np.int32)
            samples = graph(masked, inputs.input_mask, inputs.segment_ids, order, noise).numpy()
            inputs.input_ids[here, order] = np.where(used, samples, inputs.input_ids[here, order])
            for place, ids, length in zip(chosen, inputs.input_ids, inputs.lengths, strict=True):
                found[place] = tokenizer.readable(ids[1 : length - 1])
            progress.update((number + 1) * _BATCH)
    return found
