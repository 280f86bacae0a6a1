"""The README.md of an exported model: what was trained, on what, with what, and how well."""

import json
from pathlib import Path

from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.exchange.sources import Model


def model_card(model: Model, class_name: str, left_out: list[str]) -> str:
    """Markdown with the header that Hugging Face's hub reads."""
    sizes = model.architecture
    lines = ["---", "library_name: transformers", "tags:", "- electra", "---", "", f"# {model.config.model_name}", ""]
    lines += [
        f"Class: `{class_name}`. Converted from {model.origin}.",
        "",
        f"{sizes.num_hidden_layers} layers of {sizes.hidden_size} with {sizes.num_attention_heads} heads, embeddings "
        f"of {sizes.embedding_size}, {'uncased' if model.casing.do_lower_case else 'cased'} WordPiece vocabulary of "
        f"{sizes.vocab_size:,} tokens.",
        "",
        "## Training",
        "",
        *([training_of(model.config)] if model.is_run else ["See the model that it was converted from."]),
    ]
    if model.scores:
        lines += ["", "## Scores", "", "```json", json.dumps(model.scores, indent=2, sort_keys=True), "```"]
    if left_out:
        lines += ["", "## Not in this directory", "", *(f"- {what}" for what in left_out)]
    return "\n".join(lines) + "\n"


def training_of(config: PretrainingConfig | FinetuningConfig) -> str:
    """What a run learned, in a sentence."""
    if isinstance(config, FinetuningConfig):
        return (
            f"Fine-tuned on {', '.join(config.task_names)} for {config.num_train_epochs:g} epochs: batches of "
            f"{config.train_batch_size}, learning rate {config.learning_rate:g}, layer-wise decay "
            f"{config.layerwise_lr_decay:g}, inputs of up to {config.max_seq_length} tokens."
        )
    titles = [kind.title for kind in config.objective_classes if kind.title]
    if not config.trains_main_network:
        titles = ["masked language modelling (BERT)", *titles]
    titles += [f"the auxiliary task {task}" for task in config.aux_tasks]
    records = "/".join(Path(config.pretrain_tfrecords).parent.parts[-2:])  # not where on the machine that is
    return (
        f"Pre-trained by {' and '.join(titles)}: {config.num_train_steps:,} steps of {config.train_batch_size} "
        f"sequences of up to {config.max_seq_length} tokens of the records in `{records}`, "
        f"learning rate {config.learning_rate:g}."
    )
