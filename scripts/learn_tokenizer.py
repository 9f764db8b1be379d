"""How the shipped tokenizers were learned: a byte-level BPE that splits as Llama-3's does, first on the synthetic novel.

Bytes are its alphabet, so it reads any text. Numbers fall into groups of up to three digits, each a single token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
VOCABULARY = 4096
LLAMA_3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """Learn a tokenizer of exactly `vocabulary` entries; digits in `texts` should be absent (they get their own)."""
    groups = [f"{i:0{digits}d}" for digits in (2, 3) for i in range(10**digits)]
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(groups),
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learned.train_from_iterator(texts, trainer)
    state = json.loads(learned.to_str())["model"]
    vocab: dict[str, int] = state["vocab"]
    merges = [(left, right) for left, right in state["merges"]]
    for group in groups:
        vocab[group] = len(vocab)
    merges += [(a, b) for a, b in product("0123456789", repeat=2)]
    merges += [(group[:cut], group[cut:]) for group in groups if len(group) == 3 for cut in (1, 2)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, vocab[BOS])]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out_dir: Path, model_max_tokens: int) -> None:
    """Write tokenizer.json and tokenizer_config.json, as AutoTokenizer.from_pretrained reads them."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out_dir / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": EOS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model_max_tokens,
    }
    (out_dir / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Frequent English words, so that the shipped tokenizer reads other texts in fewer tokens.
COMMON_WORDS: tuple[str, ...] = _listed(
    "a able about above across act after again against age ago air all almost along already also always am among an "
    "and animal another answer any anything appear are area arm around art as ask at away back bad be became because "
    "become bed been before began begin behind being believe below best better between big black blood blue board "
    "body book both boy bring brother brought build business but buy by call called came can cannot care carry case "
    "cause certain chance change child children choice choose church city class clear close cold color come common "
    "company complete consider contain correct could country course cried cut dark day dead dear death deep did die "
    "different do does dog door down draw dress during each ear early earth east eat either else end enough even "
    "ever every example eye eyes face fact fall false family far father feel feet felt few field find fire first "
    "five fly follow following food foot for force form found four free friend friends from full game gave general "
    "get girl give given go god gone good got government great green ground group grow had half hand hands happy hard "
    "has have he head hear heard heart held help her here herself high him himself his history hold home hope horse "
    "hour house how however human hundred idea if important in indeed into is it its itself just keep kept kind king "
    "knew know known lady land language large last later law lay lead learn least leave led left less let life light "
    "like line list little live long look looked lord lost love low made main make man many mark matter may me mean "
    "men might mile mind minute miss moment money month more morning most mother move much music must my name near "
    "need never new next night no nor not nothing now number of off often old on once one only open option or order "
    "other our out over own page paper part party pass passage passed people perhaps person place plain plan play "
    "point poor possible power present problem public put question quite rather reach read ready real reason red "
    "rest result return right river road room round rule run said same saw say school sea second see seem seemed "
    "seen sense sent set several shall she ship short should show side simple since sir sister sit six sleep small "
    "so some something soon sort sound speak spoke stand start state step still stood stop story street strong such "
    "sun sure system table take taken talk tell ten text than that the their them themselves then there these they "
    "thing things think third this those though thought thousand three through thus time to today together told too "
    "took top toward town tree true try turn turned two under understand until up upon us use used value very voice "
    "wait walk want war was watch water way we week well went were what when where whether which while white who "
    "whole whom whose why wife will wind wish with within without woman women word words work world would write "
    "written wrong year years yes yet you young your A And Answer As At But Context For He I In It My No Of On "
    "Option Passage Question She So That The Then There They This To We What When Which You Yes"
)
