"""The shipped tokenizer, and encoding by pieces."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweight.assets import smoke_base_dir
from tokenweight.corpus import novel
from tokenweight.corpus.documents import Document
from tokenweight.corpus.encoding import Encoder, encode_prefix, split_pieces

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from learn_tokenizer import BOS, EOS, save_tokenizer, train_tokenizer

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


@settings(max_examples=200)
@given(text=st.text())
def test_reads_any_text_and_gives_it_back(shipped: Encoder, text: str) -> None:
    ids = shipped._tokenizer(text, add_special_tokens=False)["input_ids"]
    assert shipped._tokenizer.decode(ids) == text


def test_facts(shipped: Encoder) -> None:
    tokenizer = shipped._tokenizer
    assert len(shipped._tokenizer) == 4096
    assert tokenizer("Hello")["input_ids"][0] == shipped.bos == tokenizer.convert_tokens_to_ids(BOS)
    assert tokenizer("Hello")["input_ids"].count(shipped.bos) == 1
    assert shipped.eos == tokenizer.convert_tokens_to_ids(EOS)
    numbers = [str(i) for i in range(1000)] + [f"{i:02d}" for i in range(100)] + [f"{i:03d}" for i in range(1000)]
    assert all(len(ids) == 1 for ids in tokenizer(numbers, add_special_tokens=False)["input_ids"])
    assert tokenizer.convert_ids_to_tokens(tokenizer("8707870", add_special_tokens=False)["input_ids"]) == [
        "870",
        "787",
        "0",
    ]


def test_learning_again_gives_the_same_tokenizer_and_it_loads(tmp_path: Path) -> None:
    texts = ["the cat sat on the mat " * 20, "a quiet river runs deep " * 20]
    first, second = train_tokenizer(texts, 1500), train_tokenizer(texts, 1500)
    assert first.to_str() == second.to_str()
    save_tokenizer(first, tmp_path, 1000)
    encoder = Encoder(tmp_path)
    assert encoder.bos == 0
    assert len(encoder._tokenizer) <= 1500


def test_pieces_are_the_text(shipped: Encoder) -> None:
    text = next(novel.books(0, "train", 1, 4000)).text
    pieces = list(split_pieces(text, 1000))
    assert len(pieces) > 10
    assert "".join(pieces) == text
    assert list(split_pieces("x" * 5000, 1000)) == ["x" * 5000]
    assert list(split_pieces("", 1000)) == [""]


@pytest.mark.parametrize("directory", [smoke_base_dir(), DATA / "tokenizers" / "gpt-neox-20b"])
def test_pieces_equal_the_whole(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not directory.exists():
        pytest.skip("tokenizer not there")
    text = (
        next(novel.books(0, "train", 1, 4000)).text + "\r\n\r\n  Naïve café, it's 1,234  spaces\tand 你好 words. " * 50
    )
    encoder = Encoder(directory)
    assert encoder._piecewise
    monkeypatch.setattr("tokenweight.corpus.encoding.split_pieces", lambda text: split_pieces(text, 300))
    assert len(list(split_pieces(text, 300))) > 40
    by_pieces = encoder.encode(Document("a", text)).tokens.tolist()
    assert by_pieces == encoder._tokenizer(text, add_special_tokens=False)["input_ids"]


def test_labels_do_not_depend_on_pieces(shipped: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    document = next(novel.books(0, "train", 1, 3000))
    whole = shipped.encode(document)
    monkeypatch.setattr("tokenweight.corpus.encoding.split_pieces", lambda text: split_pieces(text, 500))
    pieces = shipped.encode(document)
    for name in ("tokens", "kinds", "distances"):
        assert getattr(whole, name).tolist() == getattr(pieces, name).tolist()


def test_a_tokenizer_with_a_dummy_prefix_is_not_cut(tmp_path: Path) -> None:
    """As of Llama 2: each text begins with a space that it has not, and so would each of its pieces."""
    from tokenizers import Tokenizer, models, normalizers

    tokenizer = Tokenizer(models.BPE({"▁": 0, "a": 1, "<unk>": 2}, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    encoder = Encoder(tmp_path)
    text = "a a a " * 1000
    assert len(list(split_pieces(text))) > 1
    assert len(list(encoder.stream(text))) == 1
    assert (
        encoder.encode(Document("a", text)).tokens.tolist()
        == (encoder._tokenizer(text, add_special_tokens=False)["input_ids"])
    )


def test_without_bos(no_bos_dir: Path) -> None:
    assert Encoder(no_bos_dir).bos is None


def test_neither_truncation_nor_padding_of_a_tokenizer_counts(no_bos_dir: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    shutil.copytree(no_bos_dir, tmp_path / "copy")
    tokenizer = Tokenizer.from_file(str(no_bos_dir / "tokenizer.json"))
    tokenizer.enable_truncation(max_length=3)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "copy" / "tokenizer.json"))
    for words in (2, 5):
        text = " ".join(f"w{i}" for i in range(words))
        assert Encoder(tmp_path / "copy").encode(Document("a", text)).tokens.tolist() == list(range(words))


def test_a_tokenizer_in_python_adds_nothing_either(shipped: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers still has some; chunks would have a BOS at the start of each piece."""
    text = "A quiet river runs deep, " * 30
    with_threads = [ids.tolist() for ids in shipped.stream(text)]
    monkeypatch.setattr(type(shipped._tokenizer), "is_fast", False)
    assert [ids.tolist() for ids in shipped.stream(text)] == with_threads


@pytest.mark.parametrize("word", [" Stonebridge", " a", "0123456789abcdef"])
def test_the_prefix_of_a_text_has_its_first_tokens(shipped: Encoder, word: str) -> None:
    """Also where a token has more characters than is thought, and where it has less."""
    tokenizer, text = shipped._tokenizer, word * 400
    for n_tokens in (1, 5, 100, 300):
        found = encode_prefix(tokenizer, text, n_tokens)["input_ids"]
        assert found[:n_tokens] == tokenizer(text)["input_ids"][:n_tokens]
        assert len(found) >= n_tokens
