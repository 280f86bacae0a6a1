"""The README.md of an exported model: what was trained, on what, with what, and how well."""

import json

from configure_finetuning import FinetuningConfig
from configure_pretraining import PretrainingConfig
from exchange.sources import Model

_OBJECTIVES = {
    "electra_objective": "replaced-token detection (ELECTRA)",
    "electric_objective": "noise-contrastive estimation (Electric)",
    "corrective_lm_objective": "corrective language modelling (COCO-LM)",
    "sequence_contrast_objective": "sequence contrast (COCO-LM)",
    "multiple_choice_objective": "multiple choice among candidates (MC-BERT)",
    "replace_mlm_objective": "Replace MLM",
    "all_tokens_mlm_objective": "All-Tokens MLM",
}


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
        *(_training(model.config) if model.is_run else ["See the model that it was converted from."]),
    ]
    if model.scores:
        lines += ["", "## Scores", "", "```json", json.dumps(model.scores, indent=2, sort_keys=True), "```"]
    if left_out:
        lines += ["", "## Not in this directory", "", *(f"- {what}" for what in left_out)]
    return "\n".join(lines) + "\n"


def _training(config: PretrainingConfig | FinetuningConfig) -> list[str]:
    if isinstance(config, FinetuningConfig):
        return [
            f"Fine-tuned on {', '.join(config.task_names)} for {config.num_train_epochs:g} epochs: batches of "
            f"{config.train_batch_size}, learning rate {config.learning_rate:g}, layer-wise decay "
            f"{config.layerwise_lr_decay:g}, inputs of up to {config.max_seq_length} tokens."
        ]
    objectives = [text for name, text in _OBJECTIVES.items() if getattr(config, name)]
    return [
        f"Pre-trained by {' and '.join(objectives) or 'masked language modelling (BERT)'}: "
        f"{config.num_train_steps:,} steps of {config.train_batch_size} sequences of up to {config.max_seq_length} "
        f"tokens, learning rate {config.learning_rate:g}."
    ]
