"""The configuration: defaults, derived sizes, legal and illegal combinations, messages."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.config.hparams import layered
from electra_tf2.configure_pretraining import PretrainingConfig
from electra_tf2.pretrain.implied_hparams import implied_hparams
from electra_tf2.util.errors import UserError

_WIDE = {"generator_hidden_size": 1.0}
ELECTRIC = {"electra_objective": False, "electric_objective": True}


def config(**hparams: Any) -> PretrainingConfig:
    return PretrainingConfig.from_dict(hparams)


def refusal(**hparams: Any) -> str:
    with pytest.raises(UserError) as error:
        config(**hparams)
    return str(error.value)


def test_defaults_are_the_originals() -> None:
    c = config(model_name="m", data_dir="d")
    assert (c.electra_objective, c.gen_weight, c.disc_weight, c.mask_prob) == (True, 1.0, 50.0, 0.15)
    assert (c.learning_rate, c.lr_decay_power, c.weight_decay_rate, c.num_warmup_steps) == (5e-4, 1.0, 0.01, 10000)
    assert (c.iterations_per_loop, c.save_checkpoints_steps) == (200, 1000)
    assert (c.num_train_steps, c.num_eval_steps) == (1000000, 100)
    assert (c.model_size, c.vocab_size, c.do_lower_case) == ("small", 30522, True)
    assert (c.generator_layers, c.generator_hidden_size, c.temperature) == (1.0, 0.25, 1.0)
    assert (c.untied_generator, c.untied_generator_embeddings, c.disallow_correct) == (True, False, False)
    assert (c.max_seq_length, c.train_batch_size, c.eval_batch_size) == (128, 128, 128)
    assert c.pretrain_tfrecords == "d/pretrain_tfrecords/pretrain_data.tfrecord*"
    assert (c.vocab_file, c.model_dir) == ("d/vocab.txt", "d/models/m")
    assert c.results_txt == "d/models/m/results/unsup_results.txt"


@pytest.mark.parametrize(
    ("hparams", "main", "generator"),
    [  # layers, hidden, heads, intermediate, embedding
        ({"model_size": "small"}, (12, 256, 4, 1024, 128), (12, 64, 1, 256, 128)),
        ({"model_size": "base", "generator_hidden_size": 0.33333}, (12, 768, 12, 3072, 768), (12, 256, 4, 1024, 768)),
        ({"model_size": "large"}, (24, 1024, 16, 4096, 1024), (24, 256, 4, 1024, 1024)),
        ({"generator_layers": 0.5}, (12, 256, 4, 1024, 128), (6, 64, 1, 256, 128)),
        ({"untied_generator_embeddings": True}, (12, 256, 4, 1024, 128), (12, 64, 1, 256, 64)),
        ({"untied_generator": False}, (12, 256, 4, 1024, 128), (12, 256, 4, 1024, 128)),
        ({"electra_objective": False}, (12, 256, 4, 1024, 128), (12, 256, 4, 1024, 128)),
        ({"model_hparam_overrides": {"hidden_size": 192}}, (12, 192, 3, 768, 128), (12, 48, 1, 192, 128)),
        ({"model_hparam_overrides": {"num_attention_heads": 8}}, (12, 256, 8, 1024, 128), (12, 64, 1, 256, 128)),
        # As wide as the main network, whose heads are not those of the rule for generators.
        (_WIDE | {"hidden_size": 200, "num_attention_heads": 4}, (12, 200, 4, 800, 128), (12, 200, 4, 800, 128)),
        (_WIDE | {"hidden_size": 400, "num_attention_heads": 8}, (12, 400, 8, 1600, 128), (12, 400, 8, 1600, 128)),
    ],
)
def test_sizes_follow_table_6_and_the_fractions(
    hparams: dict[str, Any], main: tuple[int, ...], generator: tuple[int, ...]
) -> None:
    c = config(**hparams)
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
    for sizes, expected in ((c.architecture, main), (c.generator_architecture, generator)):
        assert tuple(getattr(sizes, name) for name in names) == expected


def test_an_indivisible_generator_width_is_rounded_or_in_compat_refused() -> None:
    hparams = {"model_size": "base", "generator_hidden_size": 0.3, "learning_rate": 2e-4}  # 230 wide, 3 heads
    rounded = config(**hparams)
    assert rounded.generator_architecture.hidden_size == 231
    assert any("230, rounded to 231" in note for note in rounded.notes())
    assert "230, which is not divisible by its 3 heads" in refusal(**hparams, compat="original")


@pytest.mark.parametrize(
    ("hparams", "reason"),
    [
        ({"electric_objective": True}, "electra_objective and electric_objective are both true"),
        (ELECTRIC | {"untied_generator": False}, "untied_generator"),
        (ELECTRIC | {"uniform_generator": True}, "uniform_generator"),
        (ELECTRIC | {"disallow_correct": True}, "disallow_correct"),
        (ELECTRIC | {"temperature": 0.5}, "temperature must be 1"),
        (ELECTRIC | {"disc_tokens": "masked"}, "disc_tokens must be all"),
        (ELECTRIC | {"generator_sample_mode": "eval"}, "as sampled, dropout included: not generator_sample_mode eval"),
        (ELECTRIC | {"mask_separators": True}, "mask_separators needs a masked language model as generator"),
        ({"two_tower_generator": True, "mask_separators": True}, "mask_separators needs a masked language model"),
        ({"adversarial_generator": True, "temperature": 0.5}, "temperature must be 1 and disallow_correct false"),
        ({"adversarial_generator": True, "disallow_correct": True}, "temperature must be 1 and disallow_correct false"),
        ({"mask_unit": "whole_word"}, "mask_unit whole_word needs mask_sampling without_replacement"),
        ({"two_tower_generator": True, "uniform_generator": True}, "choose one"),
        ({"two_tower_generator": True, "untied_generator": False}, "two_tower_generator needs untied_generator"),
        ({"two_tower_generator": True, "electra_objective": False}, "two_tower_generator needs electra_objective"),
        ({"uniform_generator": True, "electra_objective": False}, "nothing to train"),
        ({"electra_objective": False, "gen_weight": 0}, "gen_weight is 0"),
        ({"train_batch_size": 10, "gradient_accumulation_steps": 4}, "not divisible by gradient_accumulation_steps 4"),
        ({"max_seq_length": 513}, "exceeds 512 position embeddings"),
        ({"model_hparam_overrides": {"num_attention_heads": 3}}, "not divisible by its 3 heads"),
        ({"generator_layers": 0.01}, "without a layer"),
        ({"mask_prob": 0.001}, "max_predictions_per_seq is 0"),
        ({"max_predictions_per_seq": 200}, "max_predictions_per_seq is 200"),
        ({"mask_rates": [0.8, 0.1]}, "three shares"),
        ({"mask_rates": [0.8, 0.1, 0.2]}, "three shares"),
        ({"mask_rates": [True, 0, 0]}, "three shares"),
        ({"use_tpu": True, "strategy": "mirrored"}, "use one of auto, tpu"),
        ({"use_tpu": True, "precision": "float16"}, "use bfloat16"),
        ({"num_train_steps": 100}, "num_warmup_steps 10000 exceeds num_train_steps 100"),
        ({"lr_decay_steps": 100}, "lr_decay_steps 100 needs lr_schedule trapezoid"),
        (
            {"lr_schedule": "trapezoid", "lr_decay_steps": 95000, "num_train_steps": 100000},
            "num_warmup_steps 10000 and lr_decay_steps 95000 together exceed num_train_steps 100000",
        ),
        ({"adversarial_generator": True, "freeze_generator": True}, "adversarial_generator needs a generator that is"),
        ({"model_hparam_overrides": {"hiden_size": 128}}, "did you mean 'hidden_size'?"),
        ({"model_hparam_overrides": {"hidden_size": "128"}}, "hidden_size must be int"),
        ({"model_hparam_overrides": {"hidden_size": 0}}, "hidden_size must be at least 1"),
        ({"model_hparam_overrides": {"hidden_dropout_prob": 1.0}}, "hidden_dropout_prob must be below 1"),
        ({"model_hparam_overrides": {"hidden_act": "swish"}}, "one of gelu"),
        ({"model_hparam_overrides": {"vocab_size": 100}}, "vocab_size is no entry of model_hparam_overrides"),
        ({"hiden_size": 128}, "unknown hparam 'hiden_size'; did you mean 'hidden_size'?"),
        ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
        ({"generator_hparam_overrides": {"hidden_size": 64}}, "has no hidden_size: give generator_hidden_size"),
        ({"generator_hparam_overrides": {"architecture": "modernbert"}}, "architecture: give its switches one by one"),
        (
            {"generator_hparam_overrides": {"type_vocab_size": 0}},
            "type_vocab_size: others need untied_generator_embeddings",
        ),
        ({"generator_hparam_overrides": {"relative_positions": "rotary"}}, "others need untied_generator_embeddings"),
        (
            {"generator_hparam_overrides": {"max_position_embeddings": 64}, "untied_generator_embeddings": True},
            "generator: max_seq_length 128 exceeds 64 position embeddings",
        ),
        ({"generator_hparam_overrides": {"midle": 1}}, "unknown hparam 'midle'"),
        (
            {"generator_hparam_overrides": {"mlp_bias": False}, "uniform_generator": True},
            "generator_hparam_overrides needs a generator network of its own",
        ),
        ({"sequence_contrast_objective": True, "electra_objective": False}, "stands beside another"),
        ({"corrective_lm_objective": True}, "choose one"),
        ({"sequence_contrast_objective": True, "scl_gather": True, "gradient_accumulation_steps": 2}, "must be 1"),
        ({"freeze_generator": True}, "freeze_generator needs untied_generator_embeddings"),
        (
            {"electra_objective": False, "corrective_lm_objective": True, "clm_head": "tied"},
            "clm_head tied needs embedding_size 256",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(hparams: dict[str, Any], reason: str) -> None:
    assert reason in refusal(**hparams)


@pytest.mark.parametrize(
    "hparams",
    [
        {"uniform_generator": True, "untied_generator": False},  # the original's order: uniform wins
        {"uniform_generator": True, "untied_generator_embeddings": True},
        {"untied_generator": False, "untied_generator_embeddings": True},
        {"two_tower_generator": True, "temperature": 0.5, "disallow_correct": True},
        ELECTRIC | {"untied_generator_embeddings": True},
        {"electra_objective": False, "untied_generator": False},
        {"gen_weight": 0},
        {"disc_weight": 0},
        {"num_train_steps": 0},
        {"num_warmup_steps": 0},
    ],
)
def test_what_the_original_allows_is_legal(hparams: dict[str, Any]) -> None:
    config(**hparams)


@pytest.mark.parametrize(
    ("hparams", "note"),
    [
        ({"uniform_generator": True, "untied_generator_embeddings": True}, "untied_generator_embeddings has no effect"),
        ({"untied_generator": False, "untied_generator_embeddings": True}, "untied_generator_embeddings has no effect"),
        (
            {"electra_objective": False, "untied_generator_embeddings": True},
            "untied_generator_embeddings has no effect",
        ),
        ({"untied_generator": False, "generator_sample_mode": "zero_dropout"}, "zero_dropout has no effect"),
        (
            {"electra_objective": False, "generator_sample_mode": "eval"},
            "generator_sample_mode eval has no effect: there is no generator",
        ),
        (
            {"uniform_generator": True, "generator_sample_mode": "eval"},
            "generator_sample_mode eval has no effect: the generator draws uniformly",
        ),
        ({"untied_generator_embeddings": True, "freeze_generator": True}, "replacements stay random"),
        ({"model_size": "base"}, "training may diverge"),
    ],
)
def test_what_is_legal_without_effect_is_noted(hparams: dict[str, Any], note: str) -> None:
    assert any(note in one for one in config(**hparams).notes())


def test_a_generator_without_dropout_is_of_the_main_networks_size() -> None:
    stage = {"generator_hidden_size": 1.0, "untied_generator_embeddings": True, "embedding_size": 256}
    stage |= {"init_encoder_from_generator": True}
    config(**stage, generator_sample_mode="zero_dropout")
    assert "generator of the main network's size" in refusal(**stage | {"generator_hidden_size": 0.5})
    assert "a masked language model of its own" in refusal(**stage, uniform_generator=True)


@pytest.mark.parametrize(
    ("hparams", "reason"),
    [
        ({"model_size": "smal"}, "model_size is 'smal'; did you mean 'small'?"),
        ({"model_hparam_overrides": {"hiden_size": 64}}, "unknown hparam 'hiden_size'"),
        ({"init_generator_checkpoint": ["a"]}, "init_generator_checkpoint must be str or null"),
    ],
)
def test_wrong_hparams_beside_a_folder_to_start_from_are_refused(
    tmp_path: Path, hparams: dict[str, Any], reason: str
) -> None:
    (tmp_path / "config.json").write_text(config(electra_objective=False).to_json())
    with pytest.raises(UserError) as error:
        implied_hparams({"init_generator_checkpoint": str(tmp_path)} | hparams)
    assert reason in str(error.value)


def test_a_narrower_generators_heads_and_width_may_differ_from_the_rule(tmp_path: Path) -> None:
    sizes = {"hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 512}
    (tmp_path / "config.json").write_text(config(electra_objective=False, model_hparam_overrides=sizes).to_json())
    start = {"init_generator_checkpoint": str(tmp_path)}
    with pytest.raises(UserError, match=r"has 6 heads and intermediate_size 512, .* has 3 and 768: set both"):
        implied_hparams(start)
    own = {"num_attention_heads": 6, "intermediate_size": 512}
    found = implied_hparams(start | {"generator_hparam_overrides": own})
    made = config(generator_hparam_overrides=own, **found)
    assert made.generator_architecture.hidden_size == 192 and made.generator_architecture.head_size == 32


def test_a_generators_checkpoint_says_as_much_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(config().to_json())
    (tmp_path / "model.ckpt-4.index").touch()
    for start in (tmp_path, tmp_path / "model.ckpt-4"):
        found = implied_hparams({"init_generator_checkpoint": str(start), "untied_generator_embeddings": True})
        assert found == {"generator_embedding_size": 128}  # not that its generator is as large as its main network


def test_a_checkpoint_of_both_networks_gives_the_sizes_of_both(tmp_path: Path) -> None:
    """electra_mini's generator has embeddings of 128, where its recipe without bert_mini has those of 192."""
    own_tables = {"untied_generator_embeddings": True, "generator_embedding_size": 64}
    (tmp_path / "config.json").write_text(config(**own_tables).to_json())
    found = implied_hparams({"init_checkpoint": str(tmp_path), "untied_generator_embeddings": True})
    assert found["generator_embedding_size"] == 64
    assert "generator_embedding_size" not in implied_hparams({"init_checkpoint": str(tmp_path)})
    (tmp_path / "config.json").write_text(config(electra_objective=False).to_json())
    found = implied_hparams({"init_checkpoint": str(tmp_path), "untied_generator_embeddings": True})
    assert not any(name.startswith("generator_") for name in found)


def test_a_run_whose_values_are_shares_of_its_steps_keeps_their_number() -> None:
    shares = config(phases=[{"from": 0.5, "max_seq_length": 64}])
    assert "num_train_steps" in config().free_to_change and "num_train_steps" not in shares.free_to_change


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("train_batch_size", 4.0, "train_batch_size must be int, got 4.0 (float)"),
        ("train_batch_size", True, "train_batch_size must be int, got True (bool)"),
        ("do_train", "False", "do_train must be bool, got 'False' (str)"),
        ("embedding_size", "128", "embedding_size must be int or null, got '128' (str)"),
        ("mask_prob", 1.0, "mask_prob must be below 1, got 1.0"),
        ("learning_rate", float("nan"), "learning_rate must be finite, got nan"),
        ("precision", "bfloat", "precision is 'bfloat'; did you mean 'bfloat16'?"),
    ],
)
def test_messages_name_field_value_and_what_is_expected(name: str, value: Any, message: str) -> None:
    assert message in refusal(**{name: value})


def test_all_problems_are_named_at_once() -> None:
    message = refusal(train_batch_size="4", do_train="yes", learning_rat=1.0)
    assert all(part in message for part in ("train_batch_size", "do_train", "'learning_rate'"))
    assert "\n" not in message


def test_the_saved_configuration_gives_itself_back() -> None:
    c = config(model_size="base", mask_prob=0.25, hidden_size=320, embedding_size=None, num_gpus=2, debug=True)
    assert PretrainingConfig.from_dict(json.loads(c.to_json())) == c
    assert set(json.loads(c.to_json())) == {field.name for field in dataclasses.fields(c)}


def test_every_size_is_an_hparam_of_its_own() -> None:
    overrides = {"hidden_size": 192, "norm_style": "pre"}
    assert config(**overrides) == config(model_hparam_overrides=overrides)
    both = config(model_hparam_overrides={"hidden_size": 192, "num_hidden_layers": 3}, hidden_size=128)
    assert both.model_hparam_overrides == {"hidden_size": 128, "num_hidden_layers": 3}


def test_debug_is_small_but_for_what_is_given() -> None:
    def debugged(**hparams: Any) -> PretrainingConfig:
        return config(**layered(PretrainingConfig, implied_hparams(hparams | {"debug": True}), hparams), debug=True)

    c = debugged(model_size="large", num_train_steps=40, max_seq_length=512, two_tower_generator=True)
    assert (c.num_train_steps, c.architecture.num_hidden_layers, c.architecture.hidden_size) == (40, 3, 144)
    assert c.train_batch_size == 32 and c.embedding_size == 144
    assert debugged(train_batch_size=64).train_batch_size == 64
