"""Self-check of a conversion: the same sentences through our network and through what was written.

The files are read back from the disk: Hugging Face's and the original's by our own reader, so that the way out and the
way in must agree; tf-models' by tf-models itself. Tests hold what was written against transformers.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.convert import tf_models
from electra_tf2.convert.huggingface import Exported
from electra_tf2.corpus.encoding import Encoded, Text, encode
from electra_tf2.formats.stored_model import StoredModel, read_model
from electra_tf2.inference.configured import config_of, make_network
from electra_tf2.inference.network import assign
from electra_tf2.model import kernels
from electra_tf2.model.heads import PredictionHead
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
            result["logits"] = _task_logits(model, result["states"], rows.input_mask)
        return result


def _task_logits(model: StoredModel, states: np.ndarray, input_mask: np.ndarray) -> np.ndarray:
    """Computes a fine-tuned head of ours on [B, L, H], without dropout."""
    config = config_of(model)
    assert isinstance(config, FinetuningConfig)
    task, weights = config.task_names[0], model.weights
    scope = f"task_specific/{task}"

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{scope}/{name}/kernel"] + weights[f"{scope}/{name}/bias"]

    of_text = config.kind_of(task) in ("classification", "regression")
    if of_text and config.classifier_pooling == "mean":
        weight = input_mask[..., np.newaxis]
        states = (states * weight).sum(1) / weight.sum(1)
    elif of_text:
        states = states[:, 0]
    if f"{scope}/head/dense/kernel" in weights:
        states = _prediction_head(model, f"{scope}/head", states)
    if f"{scope}/start/kernel" in weights:
        return np.concatenate([dense("start", states), dense("end", states)], -1)
    state = states
    if f"{scope}/inner/kernel" in weights:
        inner = dense("inner", state)
        state = np.tanh(inner) if config.classifier == "tanh" else tf.nn.gelu(inner).numpy()
    return dense("dense", state)


def _prediction_head(model: StoredModel, scope: str, states: np.ndarray) -> np.ndarray:
    """[..., H] -> [..., H] of model.heads.PredictionHead."""
    head = PredictionHead(scope, model.architecture)
    assign(head.trainable_variables, model.weights)
    return head(tf.constant(states)).numpy()


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
    """
    return float(np.abs(ours - theirs).max() / max(1.0, np.abs(ours).max()))


def largest_at_tokens(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], encoded: Encoded) -> float:
    """The largest `distance` at real tokens; states beyond a row's end mean nothing."""
    real, distances = encoded.input_mask.astype(bool), []
    for name, value in ours.items():
        by_token = value.shape[:2] == real.shape
        distances.append(distance(value[real], theirs[name][real]) if by_token else distance(value, theirs[name]))
    return largest(distances)
