"""Pre-training and fine-tuning that start from a Hugging Face directory: nothing is typed again."""

from pathlib import Path

import numpy as np
import pytest

from electra_tf2.corpus.vocabulary import load_vocab
from electra_tf2.finetune.model import FinetuningModel
from electra_tf2.finetune.starts import configuration
from electra_tf2.formats.readers import open_model
from electra_tf2.formats.warm_start import LoadReport, warm_start
from electra_tf2.pretrain.initial_weights import load_initial_weights
from electra_tf2.pretrain.pretraining_model import PretrainingModel
from electra_tf2.util.errors import UserError
from tests.support import golden
from tests.support import stored_models as support
from tests.support.programs import configured
from tests.support.stored_models import write_huggingface


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A discriminator, its generator, and an encoder as wide as its embeddings with a masked-LM head."""
    folder = tmp_path_factory.mktemp("released")
    model = support.tiny()
    for part, name in (("main", "discriminator"), ("generator", "generator")):
        write_huggingface(folder / name, model, part)
    support.write_crc_directory(folder / "bert", "BertForMaskedLM")
    return folder


def test_pretraining_continues_from_a_discriminator_and_its_generator(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--init-checkpoint", str(pair / "discriminator"), "--init-generator-checkpoint", str(pair / "generator")]
    config = configured("--recipe", "electra_small", "--max-seq-length", "32", *start)
    assert config.generator_architecture.num_hidden_layers == golden.config().generator_architecture.num_hidden_layers
    assert config.architecture.hidden_size == 128 and config.embedding_size == 32 and config.vocab_size == 600
    assert config.generator_architecture.hidden_size == 64
    assert load_vocab(config.vocab_file) == support.tiny().tokens and config.do_lower_case
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    assert "new here" not in capsys.readouterr().out  # what the second checkpoint has is not said to be missing
    for variable in model.trainable_variables:
        name = variable.name.split(":")[0]
        np.testing.assert_array_equal(variable.numpy(), support.tiny().weights[name], err_msg=name)


def test_a_frozen_generator_keeps_embeddings_of_its_own_width(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fast-ELECTRA's recipe asks for embeddings as wide as the generator, where it has none yet."""
    assert configured("--recipe", "electra_small_fast").generator_architecture.embedding_size == 64
    generator = str(pair / "generator")
    config = configured(
        "--recipe", "electra_small_fast", "--max-seq-length", "32", "--vocab-size", "600", "--embedding-size", "24",
        "--vocab-file", f"{generator}/vocab.txt", "--init-generator-checkpoint", generator,
    )  # fmt: skip
    assert config.generator_architecture.hidden_size == 64 and config.generator_architecture.embedding_size == 32
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    said = capsys.readouterr().out
    assert "the generator, from " in said and "new here" not in said
    weights = support.tiny().weights
    for variable in model.generator.trainable_variables:
        name = variable.name.split(":")[0]
        found = weights.get(name, weights.get(name.replace("generator/", "electra/", 1)))
        np.testing.assert_array_equal(variable.numpy(), found, err_msg=name)


def test_one_encoder_is_the_start_of_both_networks(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert = str(pair / "bert")
    start = ["--init-checkpoint", bert, "--init-generator-checkpoint", bert, "--generator-layers", "0.5"]
    config = configured("--recipe", "electra_small", "--max-seq-length", "32", *start)
    assert config.embedding_size == config.architecture.hidden_size == 24
    assert config.generator_architecture.hidden_size == 24 and config.generator_architecture.num_hidden_layers == 1
    model = PretrainingModel(config)
    load_initial_weights(model, config)
    values = {variable.name.split(":")[0]: variable.numpy() for variable in model.trainable_variables}
    first = "encoder/layer_0/output/dense/kernel"
    np.testing.assert_array_equal(values[f"generator/{first}"], values[f"electra/{first}"])
    said = capsys.readouterr().out
    assert "new here, from random values (expected): the detector's head\n" in said
    assert "not used here (expected): the masked language model's head\n" in said


def test_flags_win_over_the_directory_and_the_directory_over_the_recipe(pair: Path) -> None:
    config = configured(
        "--recipe", "electra_tiny", "--init-checkpoint", str(pair / "discriminator"),
        "--num-hidden-layers", "2", "--hidden-dropout-prob", "0.2",
    )  # fmt: skip
    assert config.architecture.num_hidden_layers == 2 and config.architecture.hidden_size == 128
    assert config.architecture.hidden_dropout_prob == 0.2 and config.architecture.intermediate_size == 512


@pytest.mark.parametrize("same_size", [False, True])
def test_two_vocabularies_do_not_go_together(same_size: bool, pair: Path, tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path, "BertForMaskedLM")
    tokens = load_vocab(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("\n".join([*tokens[:-2], *([tokens[-1], tokens[-2]] if same_size else [])]))
    start = ["--init-checkpoint", str(pair / "bert"), "--init-generator-checkpoint", str(tmp_path)]
    differ = r"another vocabulary, .*vocab.txt, than this run, .*bert/vocab.txt: token"
    with pytest.raises(UserError, match=differ if same_size else "has a vocabulary of 598, this run one of 600"):
        configured("--recipe", "electra_small", *start)


def test_fine_tuning_starts_from_a_directory(pair: Path) -> None:
    config = configuration({"init_checkpoint": str(pair / "discriminator"), "task_names": ["cola"]})
    assert config.architecture.hidden_size == 128 and config.vocab_file == str(pair / "discriminator" / "vocab.txt")
    model = FinetuningModel(config, [], 0)
    report = warm_start(model, open_model(str(pair / "discriminator")))
    assert not report.missing
    assert all(name.startswith("discriminator_predictions/") for name in report.unused)


def test_a_network_that_we_do_not_have_is_refused_before_anything_slow(pair: Path, tmp_path: Path) -> None:
    support.write_crc_directory(tmp_path, "BertForMaskedLM", model_type="roberta")
    with pytest.raises(UserError, match="roberta"):
        configured("--recipe", "electra_small", "--init-checkpoint", str(tmp_path))


def test_what_a_start_loads_is_said_by_parts_and_holes_in_a_network_are_named() -> None:
    heads = ["discriminator_predictions/dense/kernel", "discriminator_predictions/dense/bias"]
    report = LoadReport(
        loaded=["electra/encoder/layer_0/output/dense/kernel"],
        missing=[
            *heads,
            "electra/encoder/layer_1/output/dense/kernel",
            "generator/encoder/layer_0/output/dense/kernel",
        ],
        unused=["generator_predictions/output_bias", "electra/encoder/layer_7/output/dense/kernel"],
    )
    assert report.lines("some/model") == [
        "some/model: loaded 1 variable",
        "  new here, from random values (expected): the detector's head",
        "  not in it, so from random values: the generator",
        "  not used here (expected): the rest of the main network, the masked language model's head",
    ]
    assert report.holes() == ["electra/encoder/layer_1/output/dense/kernel"]
