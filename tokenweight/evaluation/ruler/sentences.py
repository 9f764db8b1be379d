"""Split English prose into sentences, so that needles stand between sentences."""

import re
from functools import lru_cache

# A full stop after these ends no sentence (a single capital letter neither: initials).
_ABBREVIATIONS = frozenset(
    "mr mrs ms messrs dr prof st jr sr vs co corp inc ltd col gen lt adm maj capt rev hon sen rep "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tues wed thurs fri no vol fig e.g i.e u.s u.k a.m p.m".split()
)
_END = re.compile(r"""([.!?]+["')\]]*)(\s+)(?=["'(\[]*[A-Z0-9_])""")


@lru_cache(maxsize=64)
def sentences(text: str) -> tuple[str, ...]:
    """Sentences of `text` in order, without the white space between them."""
    found, start = [], 0
    for match in _END.finditer(text):
        before = text[start : match.start()].rsplit(None, 1)
        last_word = before[-1].lstrip("\"'([").lower() if before else ""
        if match.group(1) == "." and (last_word in _ABBREVIATIONS or (len(last_word) == 1 and last_word.isalpha())):
            continue
        found.append(text[start : match.end(1)])
        start = match.end()
    if rest := text[start:].strip():
        found.append(rest)
    return tuple(found)
