"""What lies in the place of a model, or beside it and changes its answers: read, or refused by its name."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from electra_tf2.files.content import is_copy
from electra_tf2.files.reading import read_json, read_text
from electra_tf2.files.writing import encoded_output, row_format
from electra_tf2.formats.folders import no_weights_hint
from electra_tf2.formats.huggingface_tokenizer import casing_of
from electra_tf2.formats.readers import read_model
from electra_tf2.formats.sentence_modules import longest_in, pooling_in
from electra_tf2.util.errors import UserError
from tests.support.stored_models import write_crc_directory

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 54000000\n"
LOGIN = "<!DOCTYPE html>\n<html><body>Log in</body></html>\n"


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack", "pytorch_model.bin"])
def test_weights_of_others_are_named(tmp_path: Path, name: str) -> None:
    write_crc_directory(tmp_path / "m", "ElectraForPreTraining")
    os.rename(tmp_path / "m" / "model.safetensors", tmp_path / "m" / name)
    with pytest.raises(UserError, match=f"m has no model.safetensors; {name} is .* save_pretrained"):
        read_model(tmp_path / "m")


def test_a_hubs_cache_its_names_and_folders_in_folders_say_what_to_give(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_crc_directory(tmp_path / "models--a--b" / "snapshots" / "0a1b", "ElectraForPreTraining")
    write_crc_directory(tmp_path / "old" / "0_Transformer", "ElectraForPreTraining")
    for path, said in (
        ("models--a--b", "snapshots/0a1b"),
        ("old", "give old/0_Transformer"),
        ("a/b", "hf download a/b"),
    ):
        with pytest.raises(UserError, match=f"no (checkpoint at '{path}'|model at {path}): .*{said}"):
            read_model(path)
    assert no_weights_hint("old/nothing") == ""  # a typing error in a folder that is there


@pytest.mark.parametrize(("content", "what"), [(POINTER, "a pointer of Git LFS"), (LOGIN, "a web page")])
def test_what_stands_in_a_files_place_is_named(tmp_path: Path, content: str, what: str) -> None:
    write_crc_directory(tmp_path / "m", "ElectraForPreTraining")
    for name in ("vocab.txt", "config.json", "model.safetensors"):
        path = tmp_path / "m" / name
        kept = path.read_bytes()
        path.write_text(content)
        with pytest.raises(UserError, match=f"{name} holds {what}"):
            read_model(tmp_path / "m").tokenizer()
        path.write_bytes(kept)
    (tmp_path / "a.txt").write_text(content)
    for read in (read_text, read_json):
        with pytest.raises(UserError, match=f"a.txt holds {what}"):
            read(tmp_path / "a.txt", "hparams")


def sentence_folder(folder: Path, kinds: list[str], pooling: dict[str, Any], **files: dict[str, Any]) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": f"{n}_{kind}" * (n > 0)}
        for n, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


CLS, MEAN = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling_mode_mean_tokens": True}
PLAIN = ["Transformer", "Pooling"]


def test_a_folder_of_sentence_transformers_says_how_it_pools(tmp_path: Path) -> None:
    assert pooling_in(tmp_path) == ""
    longest = {"max_seq_length": 64}
    folder = sentence_folder(tmp_path / "a", [*PLAIN, "Normalize"], CLS, sentence_bert_config=longest)
    assert pooling_in(folder) == "cls" and longest_in(folder) == 64
    assert pooling_in(sentence_folder(tmp_path / "b", PLAIN, MEAN)) == "mean"


def test_what_would_change_vectors_and_is_not_read_is_refused(tmp_path: Path) -> None:
    by_max = sentence_folder(tmp_path / "c", PLAIN, {"pooling_mode_max_tokens": True})
    with pytest.raises(UserError, match=r"c/1_Pooling/config\.json: pooling by max_tokens"):
        pooling_in(by_max)
    dense = sentence_folder(tmp_path / "d", [*PLAIN, "Dense"], MEAN)
    with pytest.raises(UserError, match=r"d/modules\.json: a module of the kind Dense"):
        pooling_in(dense)
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    prompted = sentence_folder(tmp_path / "e", PLAIN, MEAN, config_sentence_transformers=prompts)
    with pytest.raises(UserError, match=r"e/config_sentence_transformers\.json: the prompt 'query'"):
        pooling_in(prompted)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"never_split": ["<e1>"]}, "tokens beside the vocabulary's that stand for themselves in text: .'<e1>'"),
        ({"additional_special_tokens": ["<e1>"]}, "'<e1>'"),
        ({"added_tokens_decoder": {"5": {"content": "[E1]"}}}, "E1"),
        ({"tokenizer_class": "RemBertTokenizer"}, "tokenizer_class RemBertTokenizer"),
    ],
)
def test_settings_of_a_tokenizer_that_change_ids_are_refused(tmp_path: Path, settings: dict, said: str) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"added_tokens_decoder": {"0": {"content": "[PAD]"}}, "do_lower_case": True}))
    assert casing_of(tmp_path).do_lower_case
    path.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=said):
        casing_of(tmp_path)


def test_an_output_is_what_its_name_says() -> None:
    formats = {
        "a.csv": "csv",
        "a.TSV": "tsv",
        "a.jsonl": "jsonl",
        "a.json": "json",
        "a": "jsonl",
        "a.csv.gz": "csv",
        "a.conll": "conll",
        "a.txt": "conll",
    }
    for name, expected in formats.items():
        assert row_format(name) == expected
    assert encoded_output("a.jsonl.gz", "x").startswith(b"\x1f\x8b") and encoded_output("a.jsonl", "x") == b"x"
    for name in ("a.parquet", "a.xlsx", "a.xlsx.gz", "a.jsonl.zst", "a.text"):
        with pytest.raises(UserError, match=name):
            row_format(name)


def test_copies_of_editors_are_told() -> None:
    assert all(map(is_copy, ("a.txt~", "#a.txt#", "a.txt.bak", "a.orig", ".a.swp", "a.csv.part", "a.tmp")))
    assert not any(map(is_copy, ("a.txt", "#a.txt", "backup.txt", "a.parquet")))
