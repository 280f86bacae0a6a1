"""Settings that nobody gave: the model's, its size's, its recipe's, the task's; and what each variable learns at."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from electra_tf2.config.recipes import read_recipe
from electra_tf2.configure_finetuning import FinetuningConfig
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.finetune.batching import FeatureTable, TaskFeatures
from electra_tf2.finetune.model import FinetuningTask, layer_multiplier, layer_of, number_of_steps
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.prompt import LabelWordHead
from electra_tf2.finetune.tasks.task import Features
from electra_tf2.finetune.trained_folder import trained_config
from electra_tf2.model.encoder import Encoder
from electra_tf2.util.errors import UserError
from tests.support import finetuning as support
from tests.support import golden
from tests.support.finetuning import write_lines


@pytest.fixture
def pretrained(tmp_path):
    """A function that leaves the configuration of a run of a recipe under the name m. Returns data_dir."""

    def of(recipe, **hparams):
        folder = tmp_path / "models" / "m"
        folder.mkdir(parents=True, exist_ok=True)
        values = {"model_name": "m", "recipe": recipe} | (read_recipe(recipe) if recipe else {}) | hparams
        (folder / "config.json").write_text(PretrainingConfig.from_dict(values).to_json())
        return str(tmp_path)

    return of


def resolved(data_dir, **hparams):
    c = configuration({"data_dir": data_dir, "model_name": "m", "task_names": ["cola"]} | hparams)
    return c.learning_rate, c.num_train_epochs, c.weight_decay_rate, c.clip_norm, c.model_size


def test_a_model_is_fine_tuned_as_its_recipe_says(pretrained):
    data_dir = pretrained("electra_large")
    assert resolved(data_dir) == (5e-5, 3, 0, 1, "large")
    assert resolved(data_dir, task_names=["rte"], learning_rate=1e-3) == (1e-3, 10, 0, 1, "large")
    data_dir = pretrained("coco_lm_small")
    assert resolved(data_dir) == (2e-5, 10, 0.01, 0, "small")
    assert resolved(data_dir, task_names=["chunk"]) == (2e-5, 3, 0.01, 0, "small")
    own = {"task_names": ["q"], "tasks": {"q": {"type": "qa"}}}
    assert resolved(data_dir, **own)[1] == 3  # as its recipe has it for squad
    assert resolved(data_dir, recipe="electra_base") == (1e-4, 3, 0, 1, "small")


def test_the_configuration_itself_reads_no_files(pretrained):
    given = {"data_dir": pretrained("electra_large"), "model_name": "m", "task_names": ["cola"]}
    assert configuration(given).model_size == "large"
    assert FinetuningConfig.from_dict(given).model_size == "small"


def test_a_checkpoint_is_fine_tuned_as_the_recipe_of_its_run_says(pretrained):
    data_dir = pretrained("electra_large")
    folder = Path(data_dir, "models", "m")
    (folder / "model.ckpt-4.index").touch()
    for start in (folder, folder / "model.ckpt-4"):
        found = resolved(data_dir, model_name="other", init_checkpoint=str(start))
        assert found == (5e-5, 3, 0, 1, "large")


def test_a_small_table_is_trained_for_enough_steps(pretrained):
    data_dir = pretrained("electra_small")
    table = {"task_names": ["q"], "tasks": {"q": {"type": "classification"}}}

    def steps(examples, **hparams):
        config = configuration({"data_dir": data_dir, "model_name": "m"} | hparams)
        return number_of_steps(config, examples)

    assert steps(300, **table) == 100  # 10.7 epochs of batches of 32
    assert steps(3200, **table) == 300  # three epochs
    assert steps(0, **table) == 0
    assert steps(300, **table, num_train_epochs=1) == 10  # as it is said
    assert steps(300, **table, compat="original") == 30
    assert steps(300, task_names=["rte"]) == 100  # ten epochs of its paper
    assert steps(300, task_names=["cola"]) == 30


def test_prompts_and_the_originals_settings_come_before_the_models_recipe(pretrained):
    data_dir = pretrained("coco_lm_small")
    assert resolved(data_dir, task_names=["sst"], prompt=True) == (1e-5, 1, 0, 1, "small")
    assert resolved(data_dir, compat="original") == (1e-4, 3, 0.01, 1, "small")


def test_a_folder_says_how_it_was_trained_without_the_recipe(tmp_path):
    recipe = write_lines(tmp_path / "mine.json", '{"finetuning": {"learning_rate": 0.125}}')
    config = configuration({"recipe": str(recipe), "task_names": ["cola"], "data_dir": str(tmp_path)})
    folder = write_lines(tmp_path / "moved" / "config.json", config.to_json()).parent
    for name in ("tasks.json", "vocab.txt"):
        write_lines(folder / name, "{}")
    recipe.unlink()
    assert trained_config(folder, {}, elsewhere=True).learning_rate == 0.125


def test_a_size_has_the_papers_rate_where_no_recipe_says_more(pretrained):
    assert resolved(pretrained("bert_small")) == (3e-4, 3, 0.01, 1, "small")
    assert resolved(pretrained(""))[0] == 3e-4
    assert resolved(pretrained("", model_size="base"))[0] == 1e-4


@pytest.mark.parametrize("model", ["bert_mini", "electra_mini", "electra_evening", "electra_deep"])
def test_shipped_models_are_fine_tuned_without_dropout(tmp_path, model):
    """They were pre-trained without. In a few hundred steps dropout shifts what their heads learn: pairs became worse
    than their commonest label."""
    own = {"model": model, "train_file": str(tmp_path / "pairs.csv"), "text_column": ["a", "b"]}
    assert configuration(own).model_hparam_overrides["hidden_dropout_prob"] == 0.0
    numbers = configuration(own | {"task_type": "regression"})
    assert numbers.model_hparam_overrides["hidden_dropout_prob"] == 0.0 and numbers.max_seq_length == 128
    for task, dropout in (("mrpc", 0.0), ("chunk", 0.0), ("sentence_embedding", 0.1)):
        built_in = configuration({"model": model, "task_names": [task], "data_dir": str(tmp_path)})
        assert built_in.model_hparam_overrides["hidden_dropout_prob"] == dropout


@pytest.mark.parametrize(
    "dropout", [{"hidden_dropout_prob": 0.2}, {"model_hparam_overrides": {"hidden_dropout_prob": 0.2}}]
)
def test_a_dropout_rate_of_ones_own_leaves_the_sizes_of_the_model(pretrained, dropout):
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_dropout_prob": 0.0}
    data_dir = pretrained("", model_hparam_overrides=sizes)
    c = configuration({"data_dir": data_dir, "model_name": "m"} | dropout)
    assert c.model_hparam_overrides == sizes | {"hidden_dropout_prob": 0.2}


def test_a_size_that_is_not_the_models_is_refused(pretrained):
    data_dir = pretrained("electra_base")
    assert resolved(data_dir, model_size="base") == resolved(data_dir)
    with pytest.raises(UserError, match=r"the model in .*models/m is 'base': 12 layers of 768"):
        resolved(data_dir, model_size="small")
    assert resolved(data_dir, model_size="small", random_init=True)[-1] == "small"
    released = {"init_checkpoint": str(golden.CHECKPOINT), "task_names": ["cola"], "max_seq_length": 32}
    assert configuration(released | {"model_size": "small"}) == configuration(released)
    with pytest.raises(UserError, match="is 'small': 2 layers of 128"):
        configuration(released | {"model_size": "base"})
    assert configuration({"model_name": "not_there", "model_size": "large"}).model_size == "large"


def test_debug_leaves_explicit_flags_alone(pretrained):
    c = configuration({"data_dir": pretrained(""), "model_name": "m", "debug": True, "train_batch_size": 4})
    assert (c.train_batch_size, c.num_trials, c.debug_examples) == (4, 1, 64)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\x00", b"{", b'{"model_size": "small"}', b"null"])
def test_a_damaged_configuration_of_the_pretrained_model_is_one_line(pretrained, content):
    data_dir = pretrained("")
    path = Path(data_dir) / "models" / "m" / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path.parent}.*config\.json"):
        resolved(data_dir)


def test_the_pretrained_models_values_have_types_too(pretrained):
    data_dir = pretrained("")
    path = Path(data_dir) / "models" / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": "many"}))
    with pytest.raises(UserError, match="vocab_size must be int, got 'many'"):
        resolved(data_dir)


@pytest.mark.parametrize("norm_style", ["post", "pre"])
def test_every_layer_has_its_rate_and_a_prompts_head_that_of_a_head(norm_style):
    architecture = configuration(
        {"model_hparam_overrides": {"hidden_size": 8, "num_hidden_layers": 2, "norm_style": norm_style}}
        | {"vocab_size": 20, "model_name": "none"}
    ).architecture
    encoder = Encoder("electra", architecture)
    head = LabelWordHead("generator_predictions", encoder, True, [5, 6], False, 0)
    variables = {v.name.split(":")[0]: v for v in [*encoder.trainable_variables, *head.trainable_variables]}
    rates = {name: round(layer_multiplier(name, 2, 0.5, "head"), 6) for name in variables}
    for name, rate in rates.items():
        if name.startswith("generator_predictions/"):
            assert rate == 1
        elif "/layer_1/" in name or name.startswith("electra/encoder/LayerNorm/"):
            assert rate == 0.5
        elif "/layer_0/" in name:
            assert rate == 0.25
        else:
            assert "embeddings" in name and rate == 0.125
    assert ("electra/encoder/LayerNorm/gamma" in rates) == (norm_style == "pre")
    assert {layer_of(name, 2) for name in variables} == {-1, 0, 1, None}
    undecayed = {name.rsplit("/", 1)[1] for name, variable in variables.items() if not variable.decays}
    assert undecayed == {"bias", "beta", "gamma", "output_bias"}
    assert all(isinstance(variable, tf.Variable) for variable in variables.values())


# google-research/electra's configure_finetuning.py.
ORIGINAL = {
    "max_seq_length": 128,
    "learning_rate": 1e-4,
    "weight_decay_rate": 0.01,
    "layerwise_lr_decay": 0.8,
    "num_train_epochs": 3.0,
    "warmup_proportion": 0.1,
    "train_batch_size": 32,
    "eval_batch_size": 32,
    "num_trials": 1,
    "double_unordered": True,
    "max_query_length": 64,
    "doc_stride": 128,
    "n_best_size": 20,
    "max_answer_length": 30,
    "answerable_classifier": True,
    "answerable_uses_start_logits": True,
    "answerable_weight": 0.5,
    "joint_prediction": True,
    "beam_size": 20,
    "qa_na_threshold": -2.75,
}


def test_questions_of_ones_own_are_answered_where_an_answer_is_likelier_than_none(tmp_path):
    own = {"data_dir": str(tmp_path), "task_names": ["q"], "tasks": {"q": {"type": "qa"}}}
    assert configuration(own).qa_na_threshold == 0
    assert configuration(own | {"compat": "original"}).qa_na_threshold == -2.75
    assert configuration({"data_dir": str(tmp_path), "task_names": ["squad"]}).qa_na_threshold == -2.75
    assert configuration(own | {"qa_na_threshold": 1.5}).qa_na_threshold == 1.5


def test_what_nobody_gives_is_what_the_original_has(tmp_path):
    config = configuration({"data_dir": str(tmp_path), "task_names": ["cola"], "compat": "original"})
    assert {name: getattr(config, name) for name in ORIGINAL} == ORIGINAL


def test_the_rate_rises_for_a_tenth_of_the_steps():
    config = support.config("cola", num_train_epochs=1.0, train_batch_size=1)
    features = [Features(np.array([2, 3], np.int32), np.zeros(2, np.int32), {"label_ids": 0})] * 50
    tasks = make_tasks(config, support.tokenizer())
    table = FeatureTable([TaskFeatures("cola", features, tasks[0].labels)], config.max_seq_length)
    model = FinetuningTask(config, tasks, tf.distribute.get_strategy(), False, table, 0)
    rates = [float(model.optimizer.schedule(tf.constant(step))) for step in range(51)]
    # Warm-up and decay are multiplied, as in the original: step / 5 and 1 - step / 50.
    expected = [config.learning_rate * min(1, step / 5) * (1 - step / 50) for step in range(51)]
    assert rates == pytest.approx(expected)
