"""Seeded text: the synthetic novel, in which the kind of each piece is known, and echoes.

Books are long (about `document_tokens`) and full of facts: persons bound to places, trades and keepsakes, keys
bound to numbers in the words of RULER's needles. A fact is stated once and needed again tens to thousands of
tokens later. Between them stand sayings (easy: determined by the words before) and random words (hard). With each
training book come short pieces of about 200 to 1,000 tokens: letters, and exercises in RULER's prompt form.

An echo is a passage of random words and numbers, said again and again. Nothing foretells the first saying; every later
one is determined by the one before it, a passage's length back. Echoes teach a small model to look back at all (induction
heads: Olsson et al. 2022). Without them a model of 31 M parameters that read 105 M tokens of books and of the synthetic
novel went on naming any fact of the text (docs/mini.md).
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import islice, pairwise
from random import Random
from string import ascii_lowercase, ascii_uppercase
from uuid import UUID

from tokenweight.corpus.documents import Document, Kind, Split, in_order
from tokenweight.corpus.manuscript import NAMES, NOVEL, SAYINGS, VALUES, Fact, Manuscript, Memory, words
from tokenweight.recipes.schema import EchoCorpus, NovelCorpus

CHARACTERS_PER_TOKEN = 4.0  # of this text under the shipped tokenizer: turns token targets into characters
SHORTS_PER_BOOK = 6
SHORTEST_ECHO_WORDS = 4
NUMBER_SHARE = 0.15  # of an echo's words
BOOK_FACTS = 300  # no new facts beyond: the book continues with what it knows

DOMAINS = ("chronicle", "ledger")


def documents(corpus: NovelCorpus, split: Split) -> Iterator[Document]:
    """Validation is books only; in training every book is followed by its short pieces."""
    shorts = SHORTS_PER_BOOK if split == "train" else 0
    number = corpus.documents if split == "train" else corpus.validation_documents
    pieces = short_pieces(corpus.seed, split, shorts * number)
    for written in books(corpus.seed, split, number, corpus.document_tokens):
        yield written
        yield from islice(pieces, shorts)


def echoes(corpus: EchoCorpus, split: Split) -> Iterator[Document]:
    """Documents of about `corpus.document_tokens` tokens; the same seed, the same bytes."""
    return in_order(partial(_nth_echo, corpus.seed, split, corpus.document_tokens), count(corpus, split))


def count(corpus: NovelCorpus | EchoCorpus, split: Split) -> int:
    if split == "validation":
        return corpus.validation_documents
    return corpus.documents * (1 + SHORTS_PER_BOOK if isinstance(corpus, NovelCorpus) else 1)


def books(seed: int, split: str, count: int, book_tokens: int) -> Iterator[Document]:
    """`count` long documents, alternately chronicles (persons) and ledgers (numbers); the same seed, the same bytes."""
    return in_order(partial(_nth_book, seed, split, book_tokens), count)


def _nth_book(seed: int, split: str, book_tokens: int, i: int) -> Document:
    rng = Random(f"novel/{seed}/{split}/book/{i}")
    return book(rng, f"{split}-book-{i:05d}", DOMAINS[i % 2], int(book_tokens * rng.uniform(0.6, 1.4)))


def short_pieces(seed: int, split: str, count: int) -> Iterator[Document]:
    """`count` short documents (about 200 to 1,000 tokens): letters of both domains, and exercises."""
    return in_order(partial(_nth_short_piece, seed, split), count)


def _nth_short_piece(seed: int, split: str, i: int) -> Document:
    rng = Random(f"novel/{seed}/{split}/short/{i}")
    id, tokens = f"{split}-short-{i:06d}", rng.randint(200, 1000)
    if i % 3 == 2:
        return exercise(rng, id, int(tokens * CHARACTERS_PER_TOKEN))
    return book(rng, id, DOMAINS[i % 3], tokens)


def book(rng: Random, id: str, domain: str, tokens: int, *, numbers: bool = True) -> Document:
    """One document of about `tokens` tokens; `numbers=False` leaves out all keys with numbers."""
    manuscript, memory = Manuscript(), _Memories(rng, domain, numbers)
    while manuscript.length < tokens * CHARACTERS_PER_TOKEN:
        for i in range(rng.randint(4, 10)):  # a paragraph
            if i:
                manuscript.write(" ")
            _sentence(rng, manuscript, memory)
        manuscript.write("\n\n")
    return manuscript.document(id, domain)


def haystack_text(seed: int, characters: int = 80_000) -> str:
    """Prose of the novel without any number or needle: RULER's haystack at smoke scale."""
    rng = Random(f"novel/{seed}/haystack")
    return book(rng, "haystack", "chronicle", int(characters / CHARACTERS_PER_TOKEN), numbers=False).text


class _Memories:
    """What a book knows: persons' facts and the ledger's entries, and how new ones are made."""

    def __init__(self, rng: Random, domain: str, numbers: bool) -> None:
        self.rng = rng
        self.person_share = 1.0 if not numbers else 0.85 if domain == "chronicle" else 0.45
        self._persons, self._entries = Memory(), Memory()
        self._of_person: dict[str, list[Fact]] = {}
        self._keys: set[str] = set()

    def person_facts(self) -> list[Fact]:
        """Facts of one person to mention next, at most one of each relation; one of them may be new."""
        known = not self._new(self._persons)
        facts = self._of_person[self._persons.draw(self.rng).key] if known else self._learn_person()
        chosen = self.rng.sample(facts, min(len(facts), self.rng.choice((1, 2, 2, 3, 3))))
        for fact in chosen:
            self._persons.touch(fact)
        return chosen

    def entry(self) -> Fact:
        """An entry of the ledger (number, uuid, variable) to mention next, new or known."""
        if not self._new(self._entries):
            return self._entries.draw(self.rng)
        u = self.rng.random()
        relation = "number" if u < 0.75 else "variable" if u < 0.98 else "uuid"
        key, value = key_and_value(self.rng, relation)
        while key in self._keys:
            key, value = key_and_value(self.rng, relation)
        self._keys.add(key)
        fact = Fact(relation, key, value)
        self._entries.touch(fact)
        return fact

    def _new(self, memory: Memory) -> bool:
        known = len(memory)
        return known < 4 or (known < BOOK_FACTS and self.rng.random() < 0.2)

    def _learn_person(self) -> list[Fact]:
        """One new fact, of somebody known or of somebody new; returns all that is known of that person."""
        open_names = [name for name, facts in self._of_person.items() if len(facts) < len(VALUES)]
        if open_names and self.rng.random() < 0.6:
            name = self.rng.choice(open_names)
        else:
            name = self.rng.choice([name for name in NAMES if name not in self._of_person] or open_names)
        facts = self._of_person.setdefault(name, [])
        relation = self.rng.choice([r for r in VALUES if r not in {fact.relation for fact in facts}])
        facts.append(Fact(relation, name, self.rng.choice(VALUES[relation])))
        self._persons.touch(facts[-1])
        return facts


def _sentence(rng: Random, manuscript: Manuscript, memory: _Memories) -> None:
    u = rng.random()
    if u < 0.07:
        manuscript.write_saying(rng.choice(SAYINGS), free_words=2)
    elif u < 0.12:
        manuscript.write(rng.choice(NOVEL["hard_openings"]) + " ")
        manuscript.write(" ".join([rng.choice(words("noun")) for _ in range(rng.randint(3, 6))]), Kind.HARD)
        manuscript.write(".")
    elif rng.random() < memory.person_share:
        _persons(rng, manuscript, memory)
    else:
        fact = memory.entry()
        template = rng.choice(NOVEL["sentences"][fact.relation])
        if not fact.stated:
            template = NOVEL["first_stated"].get(fact.relation, template)
        manuscript.write_template(template, fact.key, fact)


def _persons(rng: Random, manuscript: Manuscript, memory: _Memories) -> None:
    if rng.random() < 0.12:
        fact = memory.person_facts()[0]
        manuscript.write_template(rng.choice(NOVEL["sentences"][fact.relation]), fact.key, fact)
        return
    joints = rng.choice(NOVEL["meetings"])
    for joint in joints[:-1]:
        manuscript.write(joint)
        facts = memory.person_facts()
        manuscript.write(facts[0].key, Kind.NAME)
        for fact in facts:
            manuscript.write(NOVEL["phrases"][fact.relation])
            manuscript.write_value(fact)
    manuscript.write(joints[-1])


def _nth_echo(seed: int, split: str, document_tokens: int, i: int) -> Document:
    """A passage of 4 words up to a third of the document (log-uniform), repeated to the document's length."""
    rng = Random(f"echo/{seed}/{split}/{i}")
    most = max(SHORTEST_ECHO_WORDS, document_tokens // 6)
    words_in_it = round(math.exp(rng.uniform(math.log(SHORTEST_ECHO_WORDS), math.log(most))))
    passage = " ".join(_word(rng) for _ in range(words_in_it)) + rng.choice((". ", ".\n", "\n", ", "))
    times = math.ceil(document_tokens * CHARACTERS_PER_TOKEN / len(passage))
    return Document(f"{split}-echo-{i:06d}", passage * max(2, times), "echo")


def _word(rng: Random) -> str:
    if rng.random() < NUMBER_SHARE:
        return str(rng.randint(10_000, 9_999_999))
    return rng.choice(rng.choice((words("noun"), words("adjective"), words("verb"), NAMES, VALUES["home"])))


# --- Exercises in the prompt form of RULER (hsiehjackson/RULER, October 2024) ---
# They let a tiny base model read such prompts: needles in a haystack (one or several keys, values, queries), variable
# tracking, common and frequent words. Values asked for are labelled as recalls; the answers of variable tracking,
# word counting, and keys with several values stay unlabelled, because no single earlier place determines them.


def key_and_value(rng: Random, relation: str) -> tuple[str, str]:
    """Key and value in RULER's form: adjective-noun and 7 digits or a uuid; a variable's name and 5 digits."""
    if relation == "variable":
        return _letters(rng, ascii_uppercase, 5), str(rng.randint(10_000, 99_999))
    key = f"{rng.choice(words('adjective'))}-{rng.choice(words('noun'))}"
    return key, str(rng.randint(1_000_000, 9_999_999)) if relation == "number" else _uuid(rng)


def exercise(rng: Random, id: str, characters: int) -> Document:
    manuscript = Manuscript()
    write = rng.choices((_niah, _tracking, _common_words, _frequent_words), (12, 2, 1, 1))[0]
    write(rng, manuscript, characters)
    return manuscript.document(id, "exercises")


def _niah(rng: Random, manuscript: Manuscript, characters: int) -> None:
    """Needles, then questions up to the length: half of the text asks and answers."""
    noun = "uuid" if rng.random() < 0.08 else "number"
    values_per_key = rng.choice((1, 1, 1, 1, 2, 4))
    queries = rng.choice((1, 1, 2, 4)) if values_per_key == 1 else 1
    keys = rng.choice((queries, queries + 3, max(queries, characters // 200)))
    facts = _facts(rng, noun, keys, values_per_key)
    many = queries > 1 or values_per_key > 1
    texts = {name: text.format(noun=noun) for name, text in NOVEL["needles"].items()}
    manuscript.write(texts["opening_of_many" if many else "opening"])
    needles = [fact for group in facts for fact in group]
    rng.shuffle(needles)
    _haystack(rng, manuscript, needles, texts["needle"], int(characters * rng.choice((0.4, 0.7))))
    while True:
        _ask(manuscript, rng.sample(facts, queries), texts)
        if manuscript.length > characters - 180:
            return


def _facts(rng: Random, relation: str, keys: int, values: int) -> list[list[Fact]]:
    groups = []
    for _ in range(keys):
        key = key_and_value(rng, relation)[0] if relation == "number" or rng.random() < 0.5 else _uuid(rng)
        groups.append([Fact(relation, key, key_and_value(rng, relation)[1]) for _ in range(values)])
    return groups


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128)))


def _letters(rng: Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(alphabet, k=count))


def _haystack(rng: Random, manuscript: Manuscript, needles: list[Fact], needle: str, characters: int) -> None:
    """Needles spread over filler up to the length; where they fill it alone, one to a line."""
    filler = max(0, characters - len(needles) * 70) // 75
    places = sorted(rng.randint(0, filler) for _ in needles)
    noise = rng.random() < 0.4
    joint = "\n" if noise or not filler else " "
    for i in range(filler + 1):
        for fact in (fact for place, fact in zip(places, needles, strict=True) if place == i):
            manuscript.write_template(needle + joint, fact.key, fact)
        if i < filler:
            manuscript.write_saying(SAYINGS[0] if noise else rng.choice(SAYINGS), free_words=1)
            manuscript.write(joint)
    if joint == " ":
        manuscript.write("\n")


def _ask(manuscript: Manuscript, asked: list[list[Fact]], texts: dict[str, str]) -> None:
    """One question about all keys of `asked`, and its answer."""
    wanted = [fact for group in asked for fact in group]
    keys = [group[0].key for group in asked]
    query = ", ".join(keys[:-1]) + ", and " + keys[-1] if len(keys) > 1 else keys[0]
    manuscript.write_template(texts["question" if len(wanted) == 1 else "question_of_many"], query)
    for i, fact in enumerate(wanted):
        last = "" if len(wanted) == 2 else ","
        manuscript.write(" " if i == 0 else f"{last} and " if i == len(wanted) - 1 else ", ")
        if len(asked) == len(wanted):
            manuscript.write_value(fact)
        else:  # several values of one key: which comes first is not determined
            manuscript.write(fact.value)
    manuscript.write(".\n")


def _tracking(rng: Random, manuscript: Manuscript, characters: int) -> None:
    names = [_letters(rng, ascii_uppercase, 5) for _ in range(5)]
    value = str(rng.randint(10_000, 99_999))
    lines = [f"VAR {names[0]} = {value}"] + [f"VAR {b} = VAR {a} " for a, b in pairwise(names)]
    filler = max(5, (characters - 500) // len(SAYINGS[0]))
    places = sorted(rng.randint(0, filler - 1) for _ in lines)
    task, question = NOVEL["tracking"]
    manuscript.write(task)
    for i in range(filler):
        manuscript.write_saying(SAYINGS[0], free_words=1)
        manuscript.write("\n")
        for line in (line for place, line in zip(places, lines, strict=True) if place == i):
            manuscript.write(f" {line} ")
    manuscript.write(question.format(value=value, names=" ".join(names)))


def _common_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    count = max(40, characters // 14)
    common = rng.sample(words("noun"), 10)
    listed = common * (count // 20) + rng.choices(words("noun"), k=count // 2)
    rng.shuffle(listed)
    numbered = (" ".join(f"{i}. {word}" for i, word in enumerate(list_, 1)) for list_ in (listed, common))
    manuscript.write(NOVEL["common_words"].format(*numbered))


def _frequent_words(rng: Random, manuscript: Manuscript, characters: int) -> None:
    coded = [_letters(rng, ascii_lowercase, 6) for _ in range(12)]
    text = rng.choices(["...", *coded], [12, *(12 / (i + 1) for i in range(12))], k=max(40, characters // 14))
    manuscript.write(NOVEL["frequent_words"].format(" ".join(text), " ".join(coded[:3])))
