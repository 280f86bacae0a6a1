"""The doors at which tests.support.fuzzing knocks: for each kind, seeds and what reads them when damaged."""

import io
import json
import os
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import electra_tf2.inference.model  # noqa: F401 - so that its names can be replaced
from electra_tf2.corpus.tokenization import WordpieceTokenizer
from electra_tf2.finetune.task import Task
from electra_tf2.finetune.task_classes import make_tasks
from electra_tf2.finetune.trained_folder import find_trained, trained_config
from electra_tf2.finetune.weights import adopt_states
from electra_tf2.formats import folders
from electra_tf2.formats.tensor_file import TensorFile, write_tensors
from electra_tf2.inference.network import Network
from electra_tf2.inference.predictor import read_rows
from electra_tf2.inference.stored_model import Given, check_given, read_model, write_folder
from electra_tf2.model.architecture import Architecture
from electra_tf2.training import checkpoint_files
from electra_tf2.training.checkpoints import newest_good
from electra_tf2.training.run_folder import RunFolder, suspect_checkpoint
from electra_tf2.util.errors import UserError
from electra_tf2.util.reading import sha256_of
from electra_tf2.util.recipes import recipe_names
from tests.finetune.test_choice import race
from tests.finetune.test_superglue import MULTIRC, RECORD, WSC
from tests.support import finetuning as tuning
from tests.support import fuzzed_records, golden, stored_models
from tests.support.damage import damage_file, damage_folder, fresh_copy, some_value
from tests.support.programs import PACKAGE, flags_of_its_own, run_program

Case = Callable[[random.Random], None]
PROGRAMS = sorted(path.name for path in PACKAGE.glob("*.py") if "run(main, __doc__" in path.read_text())
_WORDS = [
    "", "-1", "0", "1", "2", "8", "600", "0.5", "1e-4", "1e400", "nan", "-inf", "9" * 25, "9" * 5000, "true", "no", "a",
    "a,b", "cola", "cola,sst", "mine", "electra_small", "vocab.txt", "corpus", "hparams.json", "recipe.json", "records",
    "nowhere/x", "..", ".", "/dev/null", "/dev/full", "/proc/self/x", "a" * 300, "a/" * 3000, "[a]", "*", "~", "é",
    "\udcff", "a\0b", "{}", "[]", "[1]", "[0.8, 0.1, 0.1]", "null", '{"a": 1}', '{"type": "qa"}', "-", "--", "=", "%s",
    '{"cola": {"learning_rate": 1}}', '{"learning_rate": [1, 2]}', '{"hidden_size": 2}', "h100", "gelu", "float16",
]  # fmt: skip


def stop(*_: object, **__: object) -> None:
    """Ends a program well, before it does what it was asked to do."""
    raise SystemExit(0)


def _flags_of(script: str) -> dict[str, Any]:
    """The flags of a program: name -> absl's flag."""
    with flags_of_its_own() as values:
        import runpy

        module = runpy.run_path(str(PACKAGE / script), run_name="flags")
        define = module.get("define_flags")
        if callable(define):
            define()
        return {name: values[name] for name in values}


def command_lines(folder: Path) -> Case:
    """Programs in a folder with a vocabulary, a corpus and files of hparams, stopped before they compute."""
    known = {script: _flags_of(script) for script in PROGRAMS}
    seed = folder / "seed"
    (seed / "corpus").mkdir(parents=True)
    (seed / "corpus" / "a.txt").write_text("the file is open\n\nit is read\n" * 20)
    (seed / "vocab.txt").write_bytes((golden.CHECKPOINT / "vocab.txt").read_bytes())
    hparams = {"learning_rate": 1e-4, "model_hparam_overrides": {"hidden_size": 64}, "phases": [], "seed": 3}
    (seed / "hparams.json").write_text(json.dumps(hparams))
    finetuning = {"task_names": ["cola"], "per_task": {"cola": {"num_train_epochs": 2.0}}}
    (seed / "recipe.json").write_text(json.dumps({"extends": "electra_small", "finetuning": finetuning, **hparams}))
    recipes = {name: json.loads((PACKAGE / "recipes" / f"{name}.json").read_text()) for name in recipe_names()}

    def value(rng: random.Random, flag: Any) -> str:
        draw = rng.random()
        if getattr(flag.parser, "enum_values", None) and draw < 0.7:
            return rng.choice(flag.parser.enum_values)
        if flag.name == "recipe" and draw < 0.6:
            return rng.choice([*recipe_names(), "recipe.json"])
        if flag.name.endswith(("_dir", "_file")) and draw < 0.5:
            return rng.choice([".", "corpus", "vocab.txt", "out", "new/out"])
        if flag.help.startswith("JSON") and draw < 0.5:
            spec = {"type": "classification", "labels": ["a", "b"], "text_columns": ["x"], "files": {"dev": "d.tsv"}}
            return json.dumps(some_value(rng, rng.choice([{"mine": spec}, hparams, [0.8, 0.1, 0.1], ["cola"]])))
        if draw < 0.1:
            return "".join(rng.choice(string.printable + "é😀\u2028") for _ in range(rng.randrange(20)))
        return rng.choice(_WORDS)

    def case(rng: random.Random) -> None:
        work = fresh_copy(seed, folder / "a" / "b" / "c" / "work")
        if rng.random() < 0.3:
            (work / "recipe.json").write_text(json.dumps(some_value(rng, rng.choice([*recipes.values()]))))
        if rng.random() < 0.3:
            damage_file(rng, work / rng.choice(["recipe.json", "hparams.json", "vocab.txt"]))
        os.chdir(work)
        script = rng.choice(PROGRAMS)
        words = []
        if script.startswith("run_") and rng.random() < 0.5:
            words += rng.choice([["--recipe", "recipe.json"], ["--hparams", "hparams.json"], ["--data-dir", "."]])
        for name in rng.sample(sorted(known[script]), min(len(known[script]), rng.choice([1, 1, 2, 3, 6]))):
            flag = known[script][name]
            spelled = rng.choice([name, name.replace("_", "-")])
            if flag.boolean and rng.random() < 0.9:
                words.append(rng.choice(["--", "--no-", "--no"]) + spelled)
            elif rng.random() < 0.5:
                words.append(f"--{spelled}={value(rng, flag)}")
            else:
                words += [f"--{spelled}", value(rng, flag)]
        if rng.random() < 0.05:
            words.insert(rng.randrange(len(words) + 1), rng.choice([*_WORDS, "--help", "--flagfile"]))
        with (
            mock.patch("electra_tf2.util.environment.import_tensorflow", stop),
            mock.patch("electra_tf2.util.environment.quiet_tensorflow", stop),
            mock.patch("electra_tf2.corpus.worker_pool._in_pool", stop),
            mock.patch("electra_tf2.inference.model.load", stop),
            mock.patch("sys.stdin", io.StringIO(rng.choice(["", "a\tb\n", "{}\n", "{\n"]))),
        ):
            finished = run_program(script, *words)
        if finished.returncode == 0:
            return
        assert finished.returncode == 2 and len(finished.errors) == 1, (script, words, finished)
        assert finished.stderr.endswith(finished.errors[0] + "\n"), (script, words, finished)
        raise UserError(finished.errors[0])

    return case


def _seed_folders(folder: Path) -> list[Path]:
    """Models of every format, small."""
    made = []
    for name in ("ElectraForPreTraining", "BertForMaskedLM", "ElectraForSequenceClassification"):
        tensors = stored_models.write_crc_directory(folder / name, name)
        (folder / name / "tokenizer_config.json").write_text(
            '{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}'
        )
        made.append(folder / name)
    names, split = sorted(tensors), folder / "split"
    fresh_copy(folder / name, split)
    (split / "model.safetensors").unlink()
    parts = {"model-1.safetensors": names[: len(names) // 2], "model-2.safetensors": names[len(names) // 2 :]}
    for file, chosen in parts.items():
        write_tensors(split / file, {one: tensors[one] for one in chosen})
    where = {one: file for file, chosen in parts.items() for one in chosen}
    (split / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    tokens = (split / "vocab.txt").read_text().split()
    (split / "vocab.txt").unlink()
    model = {"type": "WordPiece", "continuing_subword_prefix": "##", "vocab": {one: i for i, one in enumerate(tokens)}}
    normalizer = {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, "clean_text": True}
    normalizer["handle_chinese_chars"] = True
    added = [{"id": 0, "content": tokens[0], "special": True}]
    fast = {
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": model,
    }
    (split / "tokenizer.json").write_text(json.dumps(fast))
    config = json.loads((split / "config.json").read_text()) | {"id2label": {"0": "a", "1": "b"}}
    (split / "config.json").write_text(json.dumps(config))
    write_folder(folder / "ours", stored_models.tiny())
    tuned = stored_models.fine_tuned("cola", {"dense/kernel": [128, 2], "dense/bias": [2]}, {"labels": ["0", "1"]})
    write_folder(folder / "tuned", tuned)
    (folder / "tuned" / "best").mkdir()
    (folder / "tuned" / "best" / "best.json").write_text('{"step": 4, "score": 50.0, "path": "model.ckpt-4"}')
    run = fresh_copy(folder / "ours", folder / "run")
    (run / "model.safetensors").unlink()
    for path in golden.CHECKPOINT.glob("model.ckpt-400.*"):
        (run / path.name).write_bytes(path.read_bytes())
    sums = {path.name: sha256_of(path) for path in sorted(run.glob("model.ckpt-400.*"))}
    about = {"step": 400, "sha256": sums, "memory": {"examples": 3, "best": 0.5}}
    (run / "model.ckpt-400.json").write_text(json.dumps(about))
    (run / "not_finite.json").write_text('{"step": 500}')
    (run / "checkpoint").write_bytes((golden.CHECKPOINT / "checkpoint").read_bytes())
    original = fresh_copy(golden.CHECKPOINT, folder / "original")
    return [*made, split, folder / "ours", folder / "tuned", run, run, original]


def _is_small(sizes: Architecture) -> bool:
    """True if a network of these sizes fits any machine's memory."""
    widths = sizes.hidden_size, sizes.intermediate_size, sizes.embedding_size, sizes.max_position_embeddings
    return max(widths) <= 2048 and sizes.num_hidden_layers <= 8 and sizes.vocab_size <= 1000


def model_folders(folder: Path) -> Case:
    """Folders of models of every format, through all that reads them."""
    seeds = _seed_folders(folder / "seeds")
    plain = golden.config().to_json()

    def case(rng: random.Random) -> None:
        source = rng.choice(seeds)
        work = fresh_copy(source, folder / "work")
        damage_folder(rng, work)
        door = rng.randrange(8)
        if source.name == "run" and door < 5:
            with RunFolder(work, overwrite=rng.random() < 0.1) as run:
                run.check(plain, ())
                newest_good(work, suspect_checkpoint(work))
                for step in checkpoint_files.steps(work):
                    if checkpoint_files.problem(work, step) is None:
                        checkpoint_files.memory(work, step)
        elif source.name == "tuned" and door < 4:
            trained_config(find_trained({"model_dir": str(work)}, 1), {}, elsewhere=door < 2)
        elif door == 5:
            folders.network_hparams(work)
            folders.generator_hparams(work)
        elif door == 6:
            folders.config_of(work)
            check_given(str(work), Given(rng.choice([None, "a"]), rng.choice([None, 2]), rng.choice([None, True])))
        else:
            model = read_model(folders.located(str(work)))
            WordpieceTokenizer(model.tokens, *model.casing)
            if rng.random() < 0.3 and _is_small(model.architecture) and _is_small(model.generator_architecture):
                Network(model.architecture, model.generator_architecture, model.weights, "float32")
        for path in work.glob("*.safetensors"):
            file = TensorFile(path)
            for name in file.names():
                file.get(name)

    return case


def records(folder: Path) -> Case:
    """Records and their metadata, through `find_records` and the batches."""
    whole = folder / "whole"
    whole.mkdir()
    fuzzed_records.write_whole(whole)
    work = folder / "records"
    pattern = str(work / "pretrain_data.tfrecord*")
    length = fuzzed_records.LENGTH
    settings = golden.config(max_seq_length=length, mask_prob=0.2, pretrain_tfrecords=pattern)

    def case(rng: random.Random) -> None:
        fresh_copy(whole, work)
        draw = rng.random()
        if draw < 0.3:
            damage_file(rng, work / "metadata.json")
        else:
            rng.choice(fuzzed_records.OF_RECORDS)(rng, work)
            if draw < 0.8:
                (work / "metadata.json").unlink()
        fuzzed_records.read(settings, training=rng.random() < 0.5)

    return case


def _seed_tasks(folder: Path) -> dict[str, Path]:
    """Data of every format of tasks: name -> its folder."""
    seeds = {path.name: path for path in sorted(tuning.TASKS.iterdir()) if path.is_dir()}
    wic = {"word": "open", "sentence1": "open the file", "sentence2": "it is open", "start1": 0, "start2": 6}
    wic |= {"end1": 4, "end2": 10, "label": True, "idx": 0}
    copa = {"premise": "a", "choice1": "b", "choice2": "c", "question": "cause", "idx": 2, "label": 1}
    boolq = {"question": "is it", "passage": "it is", "idx": 1, "label": True}
    cb = {"premise": "a", "hypothesis": "b", "label": "entailment", "idx": 0}
    rows = {"wic": wic, "wsc": WSC | {"label": True}, "multirc": MULTIRC, "record": RECORD, "copa": copa}
    rows |= {"boolq": boolq, "cb": cb, "race": race(), "mine": {"text": "a b", "label": "x"}}
    for name, row in rows.items():
        lines = [json.dumps(row | {"label": "y"} if name == "mine" and i else row) for i in range(3)]
        for split in ("train", "dev", "test"):
            tuning.write_lines(folder / name / f"{split}.jsonl", *lines)
        seeds[name] = folder / name
    for number in range(2):
        tuning.write_lines(folder / "race" / "dev" / "high" / f"{number}.txt", json.dumps(race()))
    for split in ("train", "dev"):
        (folder / "race" / f"{split}.jsonl").unlink()
        tuning.write_lines(folder / "table" / f"{split}.csv", "text,label", '"a, b",x', "c,y", "d,x")
        tuning.write_lines(folder / "number" / f"{split}.tsv", "text\tlabel", "a b\t0.5", "c\t1", "d\t0.25")
    return seeds | {"table": folder / "table", "number": folder / "number"}


def task_files(folder: Path) -> Case:
    """Data of tasks through their readers, rows for prediction, and descriptions of tasks."""
    seeds = _seed_tasks(folder / "seeds")
    described: dict[str, Any] = {
        "mine": {"type": "classification", "labels": ["x", "y"], "text_columns": ["text"], "metric": "accuracy"},
        "table": {"type": "classification", "text_columns": ["text"], "label_column": "label", "held_out": 0.5},
        "number": {"type": "regression", "min": 0, "max": 1, "text_columns": [0], "label_column": 1, "header": True},
    }
    tokenizer = tuning.tokenizer()

    def task_of(rng: random.Random, name: str) -> Task:
        own = {name: described[name]} if name in described else {}
        if own and rng.random() < 0.5:
            own = some_value(rng, own)
        config = tuning.config(name, raw_data_dir=str(folder / "data"), tasks=own)
        config.notes()
        return make_tasks(config, tokenizer)[0]

    def case(rng: random.Random) -> None:
        name = rng.choice(sorted(seeds))
        work = fresh_copy(seeds[name], folder / "data" / name)
        task = task_of(rng, name)
        draw = rng.random()
        if draw < 0.2:
            path = rng.choice(sorted(one for one in work.rglob("*") if one.is_file()))
            if path.suffix == ".json":
                path = path.rename(path.with_suffix(".jsonl"))
            damage_file(rng, path)
            if path.is_file():
                task.parse([row for _, row in read_rows(str(path), task)], str(path))
            return
        damage_folder(rng, work)
        for split in ("train", *task.evaluation_splits, *task.test_splits):
            if task.exists(split) or split == "train":
                task.has_labels(split)
                loaded = task.load(split)
                if loaded.labelled:
                    task.balance(loaded)
                    task.majority(loaded)
                task.inputs(loaded)
        state = task.state()
        adopt_states([task], {name: some_value(rng, state) if rng.random() < 0.5 else state}, "tasks")

    return case


KINDS: dict[str, Callable[[Path], Case]] = {
    "command_lines": command_lines,
    "folders": model_folders,
    "records": records,
    "task_files": task_files,
}
