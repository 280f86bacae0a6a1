"""The peers of benchmarks/step.py: steps of tf-models-official and, on PyTorch, of Hugging Face."""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.step_job import Job, Size, Step


def tf_models_encoder(job: Job, size: Size) -> Any:
    """An encoder's configuration, whose precision is a setting of the whole process."""
    import tf_keras
    from official.nlp.configs import encoders

    if job.precision == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    sizes = size.encoder
    bert = encoders.BertEncoderConfig(num_layers=sizes.pop("num_hidden_layers"), **sizes)
    return encoders.EncoderConfig(type="bert", bert=bert)


def tf_models_function(job: Job, model: Any, loss_of: Callable[[bool], Any]) -> Any:
    """Makes the tf.function of a step. `loss_of(training)` computes the loss of the batch."""
    import tensorflow as tf
    from official.nlp import optimization

    optimizer = optimization.create_optimizer(5e-4, 1_000_000, 10_000)

    @tf.function
    def step() -> tf.Tensor:
        if job.what == "evaluation":
            return loss_of(False)
        with tf.GradientTape() as tape:
            loss = loss_of(True)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))  # clips them, too
        return loss

    return step


def tf_models_inputs(job: Job, ids: np.ndarray) -> dict[str, Any]:
    import tensorflow as tf

    fields = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": np.zeros_like(ids)}
    return {name: tf.constant(value, tf.int32) for name, value in fields.items()}


def tf_models(job: Job) -> Step:
    import tensorflow as tf
    import tf_keras
    from official.nlp.configs import electra
    from official.nlp.tasks import electra_task

    data = job.masked_batch
    count = data["positions"].shape[1]
    model_config = electra.ElectraPretrainerConfig(
        num_masked_tokens=count,
        sequence_length=job.length,
        generator_encoder=tf_models_encoder(job, job.size.generator),
        discriminator_encoder=tf_models_encoder(job, job.size),
    )
    task = electra_task.ElectraPretrainTask(electra_task.ElectraPretrainConfig(model=model_config))
    model = task.build_model()
    names = ("lm_example_loss", "discriminator_loss", "total_loss")
    metrics = [tf_keras.metrics.Mean(name=name) for name in names]
    batch = tf_models_inputs(job, data["masked"]) | {
        "masked_lm_positions": tf.constant(data["positions"], tf.int32),
        "masked_lm_ids": tf.constant(data["labels"], tf.int32),
        "masked_lm_weights": tf.ones([job.batch_size, count]),
    }

    def loss_of(training: bool) -> tf.Tensor:
        return task.build_losses(batch, model(batch, training=training), metrics)

    return tf_models_function(job, model, loss_of)


def tf_models_classifier(job: Job) -> Step:
    import tensorflow as tf
    from official.nlp.configs import encoders
    from official.nlp.modeling import models

    model = models.BertClassifier(encoders.build_encoder(tf_models_encoder(job, job.size)), num_classes=2)
    inputs = tf_models_inputs(job, job.token_ids)
    labels = tf.constant(job.labels)

    def loss_of(training: bool) -> tf.Tensor:
        logits = tf.cast(model(inputs, training=training), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    return tf_models_function(job, model, loss_of)


def hugging_face_step(job: Job, modules: list[Any], losses: Callable[[], Any], compiled: bool) -> Step:
    """Makes a step. `losses()` computes the loss of the batch from the modules' parameters."""
    import torch

    distinct = {}  # modules share embeddings
    for module in modules:
        for parameter in module.parameters():
            distinct[id(parameter)] = parameter
    parameters = list(distinct.values())
    device = _torch_device()
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, eps=1e-6, weight_decay=0.01, fused=True)
    function = torch.compile(losses) if compiled else losses
    for module in modules:
        module.train(job.what != "evaluation")

    def step() -> torch.Tensor:
        if job.what == "evaluation":
            with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=job.precision == "bfloat16"):
                return function()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=job.precision == "bfloat16"):
            loss = function()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


def _torch_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def hugging_face(job: Job, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_default_device(_torch_device())
    generator = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**job.size.generator.encoder))
    discriminator = transformers.ElectraForPreTraining(transformers.ElectraConfig(**job.size.encoder))
    generator.electra.embeddings = discriminator.electra.embeddings
    generator.generator_lm_head.weight = discriminator.electra.embeddings.word_embeddings.weight
    data = {name: torch.tensor(value) for name, value in job.masked_batch.items()}

    def losses() -> Any:
        states = generator.generator_predictions(generator.electra(data["masked"]).last_hidden_state)
        positions = data["positions"].unsqueeze(-1).expand(-1, -1, states.shape[-1])
        logits = generator.generator_lm_head(torch.gather(states, 1, positions)).float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data["labels"].flatten())
        with torch.no_grad():
            # Samples by inverting the cumulative distribution.
            cumulative = torch.softmax(logits, -1).cumsum(-1)
            uniform = torch.rand(logits.shape[:-1], device=logits.device).unsqueeze(-1)
            sampled = torch.searchsorted(cumulative, uniform * cumulative[..., -1:]).squeeze(-1)
            sampled = sampled.clamp(max=job.size.vocabulary - 1)
            corrupted = data["ids"].scatter(1, data["positions"], sampled)
            fake = (corrupted != data["ids"]).float()
        detected = discriminator(corrupted).logits.float()
        return loss + 50.0 * torch.nn.functional.binary_cross_entropy_with_logits(detected, fake)

    return hugging_face_step(job, [generator, discriminator], losses, compiled)


def hugging_face_classifier(job: Job, compiled: bool) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_default_device(_torch_device())
    model = transformers.ElectraForSequenceClassification(transformers.ElectraConfig(**job.size.encoder))
    ids = torch.tensor(job.token_ids)
    labels = torch.tensor(job.labels)

    def losses() -> Any:
        return torch.nn.functional.cross_entropy(model(ids).logits.float(), labels)

    return hugging_face_step(job, [model], losses, compiled)
