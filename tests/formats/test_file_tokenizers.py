"""Folders whose vocabulary is a tokenizer.json: WordPiece as of a vocab.txt, others by their file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE, Unigram

import electra_tf2 as electra
from electra_tf2.corpus.tokenization import FileTokenizer, tokenizer_for, undivided
from electra_tf2.corpus.vocabulary import load_vocab, vocab_bytes, vocab_sha256
from electra_tf2.exports import onnx, saved_model
from electra_tf2.exports.exportable import Options
from electra_tf2.finetune.starts import configuration
from electra_tf2.finetune.tasks import make_tasks
from electra_tf2.finetune.tasks.questions import split_words
from electra_tf2.finetune.tasks.task import Task
from electra_tf2.finetune.tasks.text import span_label
from electra_tf2.formats.huggingface_tokenizer import write_tokenizer
from electra_tf2.formats.readers import find_model, read_model
from electra_tf2.inference.word_replacement import draw_positions, replaced_texts
from electra_tf2.util.errors import UserError
from tests.support import exports
from tests.support import stored_models as support
from tests.support.programs import run_program
from tests.support.stored_models import to_huggingface, write_folder, write_huggingface

TEXTS = ["the man went to the house", "Some OTHER text, with Café: 北京!", "of", "  two   blanks [SEP] "]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _tokenizer(kind: str) -> Tokenizer:
    """A small tokenizer of another model than WordPiece, trained on a few texts."""
    texts = [*TEXTS, *(f"{word} and the other {word}s" for word in ("house", "man", "text", "city", "tree"))]
    if kind == "BPE":
        tokenizer = Tokenizer(BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(vocab_size=300, special_tokens=_SPECIAL, initial_alphabet=alphabet)
    else:
        tokenizer = Tokenizer(Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=_SPECIAL, unk_token="[UNK]")
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    pair = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=ids)
    return tokenizer


def _folder(folder: Path, kind: str, class_name: str = "BertForMaskedLM") -> Path:
    """A Hugging Face directory with a tokenizer.json and no vocab.txt, as transformers 5 saves it."""
    support.write_crc_directory(folder, class_name)
    (folder / "vocab.txt").unlink()
    if kind == "WordPiece":
        write_tokenizer(folder, support.tiny().tokens, support.LOWER, 512)
        (folder / "vocab.txt").unlink()
    else:
        _tokenizer(kind).save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
def test_ids_are_those_of_the_file(kind: str, tmp_path: Path) -> None:
    file = str(_folder(tmp_path, kind) / "tokenizer.json")
    theirs, ours = Tokenizer.from_file(file), FileTokenizer(file)
    theirs.encode_special_tokens = True
    for text, row in zip(TEXTS, electra.load(tmp_path).states(TEXTS), strict=True):
        assert row.tokens == theirs.encode(text).tokens
    assert TEXTS[0] in ours.readable([*theirs.encode(TEXTS[0]).ids, ours.special.pad]).replace("[CLS]", "")
    ids, lengths = ours.tokenize([b"", TEXTS[0].encode()])
    assert lengths.tolist() == [0, len(ids)]


@pytest.mark.parametrize("kind", ["WordPiece", "BPE", "Unigram"])
def test_a_folder_without_vocab_txt_loads_fills_and_moves(kind: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "theirs", kind)
    model = electra.load(folder)
    [best, *_] = model.fill("the man [MASK] to the house", top=2)[0]
    assert 0 < best.probability <= 1 and best.token in model.source.tokens
    write_folder(tmp_path / "ours", read_model(str(folder)))
    for before, after in zip(model.states(TEXTS), electra.load(tmp_path / "ours").states(TEXTS), strict=True):
        assert before.tokens == after.tokens
        np.testing.assert_allclose(after.vectors, before.vectors, atol=1e-6)
    ours = read_model(tmp_path / "ours")
    write_huggingface(tmp_path / "back", ours)
    assert [row.tokens for row in electra.load(tmp_path / "back").states(TEXTS)] == [
        row.tokens for row in model.states(TEXTS)
    ]


def test_wordpiece_of_a_tokenizer_json_is_that_of_its_vocabulary(tmp_path: Path) -> None:
    hparams = find_model(_folder(tmp_path, "WordPiece")).network
    assert hparams["vocab_file"] == str(tmp_path / "tokenizer.json") and hparams["do_lower_case"]
    ours = tokenizer_for(hparams["vocab_file"], hparams["do_lower_case"], hparams["do_strip_accents"])
    assert not isinstance(ours, FileTokenizer) and ours.vocab == support.tiny().tokens
    # Records that were built with either file fit a run with the other.
    (tmp_path / "vocab.txt").write_bytes(vocab_bytes(tmp_path / "tokenizer.json"))
    assert load_vocab(tmp_path / "vocab.txt") == ours.vocab
    assert vocab_sha256(tmp_path / "vocab.txt") == vocab_sha256(tmp_path / "tokenizer.json")


CONTEXT = "Charles Étienne\n(1895-1943)  lived in 北京 ."


def _write_tasks(folder: Path) -> None:
    """Files of chunk, squadv1 and wic."""
    answers = {"when": ("1895", 17), "what": ("(1895-1943)", 16), "where": ("北京", 38), "who": ("Charles Étienne", 0)}
    questions = [
        {"id": name, "question": f"{name}?", "answers": [{"text": text, "answer_start": start}]}
        for name, (text, start) in answers.items()
    ]
    squad = json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]})
    wic = {"word": "man", "sentence1": "A man went, man.", "sentence2": "No mantle, man!", "label": True}
    wic |= {"start1": 2, "end1": 5, "start2": 11, "end2": 14}
    files = {"chunk/{}.txt": "the B-NP\nCafé:northwards I-NP\n北京 O\n\n" * 4,
             "squadv1/{}.json": squad, "wic/{}.jsonl": json.dumps(wic) + "\n"}  # fmt: skip
    for name, content in files.items():
        for split in ("train", "dev"):
            path = folder / name.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def test_programs_of_cards_have_the_tokens_that_the_vocabulary_has(tmp_path: Path) -> None:
    """Padding and mask may be called otherwise than BERT's, as RoBERTa's <pad> and <mask>."""
    folder = _folder(tmp_path / "theirs", "BPE")
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace("[PAD]", "<pad>").replace("[MASK]", "<mask>"))
    model = read_model(str(folder))
    onnx.convert(tmp_path / "onnx", model, Options())
    assert exports.printed_by_card(tmp_path / "onnx")
    write_huggingface(tmp_path / "again", model)
    assert 'print(run("A <mask> text."))' in (tmp_path / "again" / "README.md").read_text()


def test_a_folder_without_vocab_txt_is_fine_tuned_and_predicts(tmp_path: Path) -> None:
    start, data = _folder(tmp_path / "start", "BPE", "ElectraForPreTraining"), tmp_path / "data"
    _write_tasks(data / "finetuning_data")
    words = ["--data-dir", str(data), "--task-names", "chunk", "--init-checkpoint", str(start)]
    words += ["--model-dir", f"{tmp_path}/tuned", "--train-batch-size", "4", "--num-train-epochs", "1"]
    done = run_program("run_finetuning.py", *words, "--max-seq-length", "48", "--num-trials", "1")
    assert done.returncode == 0, done.stderr
    model = electra.load(f"{tmp_path}/tuned_1")
    assert isinstance(model.tokenizer, FileTokenizer)
    assert model.predict(["Café 北京 !"])[0].words == ["Café", "北京", "!"]


@pytest.mark.parametrize("kind", ["BPE", "Unigram"])
def test_pieces_belong_to_the_word_that_they_are_of(kind: str, tmp_path: Path) -> None:
    tokenizer = FileTokenizer(_folder(tmp_path, kind) / "tokenizer.json")
    text = " \tThe  other   men\n(of Café:北京 ) \ud800 went"
    words = split_words(text).words
    [located] = tokenizer.located([split_words(text)])
    assert len(located.first_piece) == len(words) == 8
    assert located.ids.tolist() == tokenizer.pieces([text.replace("\ud800", "?")])[0].tolist()
    of_words = [np.split(of, located.first_piece[1:]) for of in (located.ids, located.spans, located.word_of_piece)]
    for number, (word, ids, spans, numbers) in enumerate(zip(words, *of_words, strict=True)):
        start = text.index(word)
        if kind == "BPE":
            assert tokenizer.readable(ids).strip() == word.replace("\ud800", "?")
        assert start in range(*spans[-1 if number == 0 else 0]) or number == 0
        assert start + len(word) - 1 in {place for span in spans for place in range(*span)}
        assert (numbers == number).all() and len(numbers)


@pytest.fixture(scope="module", params=["BPE", "Unigram"])
def tokenizer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    return FileTokenizer(_folder(tmp_path_factory.mktemp("tokenizer"), request.param) / "tokenizer.json")


ODD = st.sampled_from(["the", " ", "\u3000", "İß", "e\u0301", "\u200b", "🙂🏽", "中国", "ΌΔΟΣ", "a" * 201])


@settings(max_examples=50, deadline=None)
@given(st.lists(ODD | st.characters(codec="utf-8", exclude_characters="\u2581\u0120")).map("".join))
def test_places_of_pieces_in_any_text(tokenizer: FileTokenizer, text: str) -> None:
    [found] = tokenizer.located([undivided(text)])
    assert found.ids.tolist() == tokenizer.pieces([text])[0].tolist() and found.spans.shape == (len(found.ids), 2)
    starts, ends = found.spans.T
    assert (starts >= 0).all() and (starts <= ends).all() and (ends <= len(text)).all() and (np.diff(starts) >= 0).all()
    for number, (start, end) in zip(found.ids, found.spans, strict=True):
        piece = tokenizer.vocab[number].strip("\u2581\u0120")  # which stand for a blank
        if piece.isascii() and piece.isalnum():
            assert piece == text[start:end].strip()
    inside = {place for span in found.spans for place in range(*span)}
    assert all(place in inside or character.isspace() for place, character in enumerate(text))


def _task(name: str, folder: Path, **hparams: Any) -> Task:
    """A task on `_write_tasks`' files with a byte-level BPE tokenizer."""
    _write_tasks(folder)
    file = _folder(folder / "bpe", "BPE") / "tokenizer.json"
    given = {"task_names": [name], "vocab_file": str(file), "raw_data_dir": str(folder), "max_seq_length": 64}
    [task] = make_tasks(configuration(given | hparams), FileTokenizer(file))
    return task


def test_tags_stand_at_the_pieces_that_begin_their_words(tmp_path: Path) -> None:
    feature, text = _task("chunk", tmp_path).load("train").features[0], "the Café:northwards 北京"
    theirs = Tokenizer.from_file(str(tmp_path / "bpe" / "tokenizer.json")).encode(text)
    assert feature.input_ids.tolist() == theirs.ids
    places = [theirs.char_to_token(text.index(word)) for word in text.split()]
    assert feature.labels["labeled_positions"].tolist() == places and len(theirs.ids) > 6


def test_answers_are_what_the_document_says(tmp_path: Path) -> None:
    task = _task("squadv1", tmp_path, joint_prediction=False, doc_stride=16, max_seq_length=48)
    split = task.load("train")
    assert split.counts is not None and max(split.counts) > 1
    predictions = []
    for feature in split.features:  # of a head that has learned its labels
        logits = np.full([2, len(feature.input_ids)], -9.0)
        found = feature.labels["start_positions"] > 0
        logits[0, feature.labels["start_positions"]] = logits[1, feature.labels["end_positions"]] = 9 if found else -8
        predictions.append({"start_logits": logits[0], "end_logits": logits[1], "answerable_logit": np.zeros([])})
    answers = {row["id"]: row["prediction_text"] for row in task.answers(split, predictions)}
    assert answers == {"when": "1895", "what": "(1895-1943)", "where": "北京", "who": "Charles Étienne"}


def test_spans_are_marked_at_the_pieces_of_their_characters(tmp_path: Path) -> None:
    task = _task("wic", tmp_path)
    [feature] = task.load("train").features
    whole = Tokenizer.from_file(str(tmp_path / "bpe" / "tokenizer.json")).encode("A man went, man.", "No mantle, man!")
    assert feature.input_ids.tolist() == whole.ids
    for number, (start, sequence) in enumerate([(2, 0), (11, 1)]):
        marked = np.flatnonzero(feature.labels[span_label(number)])
        assert marked[0] == whole.char_to_token(start, sequence)
        assert task.tokenizer.readable(feature.input_ids[marked]) == " man"


def test_what_needs_wordpiece_says_so(tmp_path: Path) -> None:
    file = _folder(tmp_path / "bpe", "BPE") / "tokenizer.json"
    with pytest.raises(UserError, match=r"tokenizer.json is of a BPE tokenizer: .* needs WordPiece"):
        load_vocab(file)  # what builds and reads records calls
    config = configuration({"task_names": ["sst"], "vocab_file": str(file), "prompt": True})
    with pytest.raises(UserError, match="sst: a prompt's words are looked up in a WordPiece vocabulary"):
        make_tasks(config, FileTokenizer(file))
    words = ["--from", str(file.parent), "--to", f"{tmp_path}/x", "--format", "tf1"]
    done = run_program("convert_model.py", *words)
    assert "holds a WordPiece vocabulary" in done.stderr and "onnx" in done.stderr


def test_a_saved_model_takes_ids_where_the_tokenizer_is_a_file(tmp_path: Path) -> None:
    model = read_model(_folder(tmp_path / "bpe", "BPE"))
    written = saved_model.convert(tmp_path / "out", model, Options())
    assert written.difference < 1e-5
    assert (tmp_path / "out" / "tokenizer.json").read_text() == (tmp_path / "bpe" / "tokenizer.json").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"post_processor": None}, r"puts nothing around two texts: \[CLS\] A \[SEP\] B \[SEP\] is needed"),
        ({"model": {"type": "BPE", "vocab": {"a": 2**40}, "merges": []}}, "the ids of its tokens must be from 0 to"),
        ({"model": {"type": "BPE", "vocab": {"a": "b"}}}, "id of a must be an integer, got 'b'"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": 7}}, "is no tokenizer"),
    ],
)
def test_damaged_tokenizers_are_refused_in_one_line(change: dict, message: str, tmp_path: Path) -> None:
    file = _folder(tmp_path, "BPE") / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(UserError, match=message) as raised:
        FileTokenizer(file)
    assert "\n" not in str(raised.value)


def test_special_tokens_of_any_name_leave_for_hugging_face(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "theirs", "BPE")
    text = (folder / "tokenizer.json").read_text()
    for ours, theirs in (("[CLS]", "<bos>"), ("[SEP]", "<eos>"), ("[PAD]", "<pad>"), ("[MASK]", "<mask>")):
        text = text.replace(ours, theirs)
    (folder / "tokenizer.json").write_text(text)
    file = FileTokenizer(str(folder / "tokenizer.json"))
    sizes = {"architecture": "modernbert", "num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2}
    model = support.with_crc_weights(sizes)
    model = model.changed(tokens=list(file.vocab), tokenizer_file=str(folder / "tokenizer.json"))
    config = to_huggingface(model, "body").config
    ids = {name: config[f"{name}_token_id"] for name in ("cls", "bos", "sep", "eos")}
    assert ids == dict.fromkeys(("cls", "bos"), file.special.cls) | dict.fromkeys(("sep", "eos"), file.special.sep)


def test_texts_with_replaced_pieces_are_texts(tmp_path: Path) -> None:
    model = electra.load(_folder(tmp_path, "BPE"))
    found = replaced_texts(model.network, model.tokenizer, TEXTS[:1] * 8, 0.2, seed=0)
    assert len(set(found)) > 1 and not any("\u0120" in text for text in found)  # which stands for blanks in pieces
    assert sum("the man" in text for text in found) > 2


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_no_text_has_more_pieces_replaced_than_its_share(share: float) -> None:
    """Also a short text beside long ones, and one piece at least; of an empty text nothing can be replaced."""
    pieces = np.array([20, 5, 1, 0] * 50)
    places, is_replaced = draw_positions(pieces + 2, 22, share, np.random.default_rng(0))
    counts = is_replaced.sum(1)
    for size in (20, 5, 1):
        numbers = counts[pieces == size]
        assert numbers.min() == 1 and numbers.max() == max(1, round(share * size))
    assert not counts[pieces == 0].any()
    for row, size in enumerate(pieces):
        replaced = places[row][is_replaced[row]]
        # Different pieces of the text, [CLS] and [SEP] not among them.
        assert len(set(replaced)) == len(replaced) and all(1 <= place <= size for place in replaced)
