"""Self-check of a conversion: the same sentences through our network and through what was written.

The files are read back from the disk: Hugging Face's and the original's by our own reader, so that the way out and the
way in must agree; tf-models' by tf-models itself. Tests hold what was written against transformers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from electra_tf2.convert import tf_models
from electra_tf2.convert.huggingface import Exported
from electra_tf2.corpus.encoding import Encoded, Text, encode
from electra_tf2.finetune.tasks.task import HeadInput
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.stored_model import StoredModel
from electra_tf2.inference.configured import make_network
from electra_tf2.inference.predictor import Predictor
from electra_tf2.model import kernels
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import no_pattern

TOLERANCE = 1e-5  # in float32; narrower weights differ by more, which is reported
SENTENCES: tuple[Text, ...] = (
    "The generator replaces some words, and the discriminator says which.",
    ("A pair of sentences has two segments.", "The second is this one, Müller's: 北京 42!"),
    "Short.",
)


def check_inputs(model: StoredModel, sentences: Sequence[Text] = SENTENCES) -> Encoded:
    """Encodes the fixed sentences in the model's vocabulary."""
    return encode(model.tokenizer(), sentences, model.architecture.max_position_embeddings)


def our_outputs(
    model: StoredModel, part: str = "main", class_name: str = "", inputs: Encoded | None = None
) -> dict[str, np.ndarray]:
    """States [B, L, H] and logits of our network.

    Args:
      part: part of the model, as in huggingface_export.to_huggingface.
      class_name: class of Hugging Face whose head's logits are wanted; "": none.
      inputs: None: the fixed sentences.
    """
    rows = check_inputs(model) if inputs is None else inputs
    with kernels.off():
        network = make_network(model)
        batch = [tf.constant(value, tf.int32) for value in rows]
        encoder = network.generator if part == "generator" else network.encoder
        assert encoder is not None
        result = {"states": tf.cast(encoder(*batch).sequence, tf.float32).numpy()}
        if class_name == "ElectraForPreTraining":
            result["logits"] = network.replaced_logits(*batch).numpy()
        elif class_name == "ModernBertForTokenClassification" and network.detector is not None:
            logits = network.replaced_logits(*batch).numpy()
            result["logits"] = np.stack([np.zeros_like(logits), logits], -1)
        elif class_name.endswith("ForMaskedLM"):
            result["logits"] = network.token_logits(*batch).numpy()
        elif class_name and not class_name.endswith("Model"):
            result["logits"] = _task_logits(model, result["states"], rows)
        return result


def _task_logits(model: StoredModel, states: np.ndarray, rows: Encoded) -> np.ndarray:
    """Computes a fine-tuned head of ours on [B, L, H], without dropout."""
    predictor = Predictor(model, model.tokenizer())
    ids, mask, segments = (tf.constant(value, tf.int32) for value in rows)
    inputs = HeadInput(tf.constant(states), mask, segments, predictor.tasks[0].no_labels(ids))
    return predictor.model.heads[0].logits(inputs, None).numpy()


def huggingface_difference(model: StoredModel, exported: Exported, folder: str, part: str = "main") -> float:
    """The largest difference between our outputs and those of the directory, read back."""
    ours = our_outputs(model, part, exported.class_name)
    theirs = our_outputs(read_model(folder), "main", exported.class_name)
    return largest_at_tokens(ours, theirs, check_inputs(model))


def tf_models_difference(model: StoredModel, prefix: str) -> float:
    """The largest difference between our states and those of tf-models' encoder with the checkpoint's weights."""
    encoder = tf_models.build_encoder(model.architecture)
    with no_pattern(prefix) as readable:
        status = tf.train.Checkpoint(encoder=encoder).read(readable)
        status.assert_existing_objects_matched().expect_partial()
    encoded = check_inputs(model)
    theirs = encoder(
        {"input_word_ids": encoded.input_ids, "input_mask": encoded.input_mask, "input_type_ids": encoded.segment_ids}
    )["sequence_output"].numpy()
    return largest_at_tokens({"states": our_outputs(model)["states"]}, {"states": theirs}, encoded)


def saved_model_difference(model: StoredModel, folder: str | Path) -> float:
    """The largest difference between our states and those of a SavedModel, from strings."""
    with no_pattern(folder) as readable:
        loaded = tf.saved_model.load(readable)
    differences = []
    for sentence in SENTENCES:
        alone = [sentence] if isinstance(sentence, str) else list(sentence)
        names = ("text", "text_pair")[: len(alone)]
        signature = loaded.signatures["states" if len(alone) == 1 else "pair_states"]
        theirs = signature(**{name: tf.constant([text]) for name, text in zip(names, alone, strict=True)})["states"]
        ours = our_outputs(model, inputs=check_inputs(model, [sentence]))["states"]
        differences.append(np.abs(theirs.numpy() - ours).max() if theirs.shape == ours.shape else np.inf)
    return largest(differences)


def read_back_difference(model: StoredModel, again: StoredModel) -> float:
    """The largest difference between the outputs and weights of a model and of what was read back.

    Infinite if one has a variable that the other lacks.
    """
    if model.weights.keys() != again.weights.keys():
        return float("inf")
    heads = {"discriminator_predictions": "ElectraForPreTraining", "generator_predictions": "ElectraForMaskedLM"}
    kinds = [kind for scope, kind in heads.items() if f"{scope}/dense/kernel" in model.weights] or [""]
    encoded = check_inputs(model)
    outputs = [
        largest_at_tokens(our_outputs(model, "main", kind), our_outputs(again, "main", kind), encoded) for kind in kinds
    ]
    return largest([*outputs, *(distance(value, again.weights[name]) for name, value in model.weights.items())])


def largest(differences: Iterable[float]) -> float:
    """The largest number; NaN if one is, which max() may pass over."""
    return float(np.max(np.fromiter(differences, np.float64)))


def report(difference: float, dtype: str, what: str) -> str:
    """Says how large a difference is.

    Raises:
      UserError: the difference is beyond `TOLERANCE` and the weights are float32, or it is no number: float16 holds
        nothing beyond 65,504.
    """
    line = f"self-check: {what}: largest difference {difference:.2e} on {len(SENTENCES)} inputs"
    if dtype == "float32" and not difference <= TOLERANCE:
        raise UserError(
            f"{line}, above {TOLERANCE:g}: the conversion is wrong; nothing that was written should be used"
        )
    if not np.isfinite(difference):
        raise UserError(f"{line}: {dtype} cannot hold these weights; nothing that was written should be used")
    return f"{line} ({dtype} weights)" if dtype != "float32" else line


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference; where values go beyond 1, as a share of the largest of them.

    Sums of float32 round in proportion to their largest terms, and the logits of a trained language model go to 30.
    Infinite for other texts, or numbers of another shape.
    """
    if ours.shape != theirs.shape or ours.dtype.kind == "U":
        return 0.0 if np.array_equal(ours, theirs) else np.inf
    return float(np.abs(ours - theirs).max() / max(1.0, np.abs(ours).max()))


def leaves_of(answers: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Numbers and texts of answers by the answers' keys: an axis for the answers where all have as many."""
    found: dict[str, list[list[Any]]] = {}
    for answer in answers:
        for name, value in answer.items():
            leaves = list(_leaves(value))
            for kind in {isinstance(leaf, str) for leaf in leaves}:
                own = [leaf for leaf in leaves if isinstance(leaf, str) == kind]
                found.setdefault(f"{name} (text)" if kind else name, []).append(own)
    even = {name: len({len(row) for row in rows}) == 1 for name, rows in found.items()}
    return {name: np.array(rows if even[name] else [x for row in rows for x in row]) for name, rows in found.items()}


def _leaves(value: Any) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        yield "" if value is None else value
    for one in inner or ():
        yield from _leaves(one)


def largest_at_tokens(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], encoded: Encoded) -> float:
    """The largest `distance` at real tokens; states beyond a row's end mean nothing."""
    real, distances = encoded.input_mask.astype(bool), []
    for name, value in ours.items():
        by_token = value.shape[:2] == real.shape
        distances.append(distance(value[real], theirs[name][real]) if by_token else distance(value, theirs[name]))
    return largest(distances)
