"""The words of the synthetic novel: the same for every seed, so that a small model can know the language.

What changes from document to document is who lives where and which number belongs to which key.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from wonderwords import RandomWord


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: tuple[str, ...] = tuple(
    first + last
    for first, last in product(
        _listed("Al Bar Cor Dar El Fen Gar Hal Is Jor Kel Lor Mar Nor Or Per Quin Ros Sel Tor Ul Ver Wil Yor Zan"),
        _listed("a en wyn ric mund is o eth"),
    )
)
PLACES: tuple[str, ...] = tuple(
    first + last
    for first, last in product(
        _listed("Ash Black Cold Dun East Fern Glen Hazel Iron King Long Mill North Oak Pine Red Stone Thorn"),
        _listed("bridge bury dale field ford moor port wick wood"),
    )
)
TRADES: tuple[str, ...] = _listed(
    "baker barber beggar brewer butcher carpenter cobbler cook cooper cutler doctor draper driver dyer farmer "
    "ferryman fiddler fisher gardener glazier grocer guard hatter hunter joiner judge lawyer locksmith mason "
    "merchant midwife miller miner monk nurse painter pedlar piper pilot poet porter potter priest printer "
    "roofer sailor scholar scribe shepherd singer smith soldier spinner tailor tanner teacher tinker trader "
    "warden weaver"
)
KEEPSAKES: tuple[str, ...] = _listed(
    "almanac anchor apron axe banner basket bell blanket bottle bowl box bracelet broom brush bucket button cage "
    "candle cane chain chair chest clock coat coin comb compass crown cup curtain dagger diary drum fan feather "
    "flag flute goblet hammer harp helmet hook horn jar kettle key knife ladder lamp lantern letter lock locket "
    "map mask mirror needle net oar parcel pearl pipe plate purse quill ribbon ring rope saddle scarf seal shawl "
    "shield shovel spoon statue sword teapot thimble trumpet umbrella vase violin wheel whistle"
)

# Sayings: after the first two words, which no other saying shares, every word follows from those before it.
SAYINGS: tuple[str, ...] = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.",
    "A quiet river runs deep, and the deepest river never tells the children where it sleeps.",
    "All roads lead over the hill, and over the hill there is only another road.",
    "Bread is broken in the morning, wine is poured at night, and the poor have neither.",
    "Count no house finished before the roof has met the rain and the rain has gone away.",
    "Do not wake the miller while the wheel is turning, for he dreams of flour and snow.",
    "Every winter ends at last, said the old man, and he closed the door behind him.",
    "First the seed and then the stalk, and after the stalk the golden ear of corn.",
    "Give the dog his bone and the cat her milk, and let the mice look after themselves.",
    "He who walks alone at noon has his shadow under his feet and nobody to talk to.",
    "In the beginning there was water, and upon the water there was a little wooden boat.",
    "Just as the tide returns to the shore, so the traveller returns to his own fire.",
    "Keep your candle in the window and your ladder by the wall until the summer comes.",
    "Let the wind blow from the west, let the ships come in, and let us count the sails.",
    "Many hands make light work, but many tongues make a long and weary evening.",
    "No bird sings in the well, and no fish climbs the apple tree to see the moon.",
    "Once a year the market comes to town with drums and honey and painted horses.",
    "People say that the stars are nails which hold the roof of the world in its place.",
    "Rain before seven, fine before eleven, and thunder over the mountains by the evening.",
    "She sells the wool in spring and buys it back as cloth before the leaves have fallen.",
    "The clock struck twelve, the lights went out, and the whole street held its breath.",
    "There was nothing to be done about it, so they sat down and waited for the morning.",
    "Under the bridge the water is cold and slow, and the stones are smooth and round.",
    "When the bell rings three times, the gate is shut and the keeper goes home to his supper.",
    "You cannot carry the sea in a basket, nor the wind in a sack, nor yesterday in a cup.",
    "It was a long day and a longer night, and the road went on between the silent fields.",
)

HARD_OPENINGS: tuple[str, ...] = (
    "The crier called out:",
    "On the wall was written:",
    "In the margin stood:",
    "The parrot said:",
)


@cache
def words(category: Literal["adjective", "noun", "verb"]) -> tuple[str, ...]:
    """A word list of wonderwords (where RULER's keys come from) without profanities, sorted: equal in every process."""
    lists = _word_lists()
    return tuple(
        sorted(set(lists.filter(include_categories=[category])) - set(lists.filter(include_categories=["rude"])))
    )


@cache
def _word_lists() -> RandomWord:
    from wonderwords import Defaults, RandomWord

    return RandomWord(
        adjective=Defaults.ADJECTIVES, noun=Defaults.NOUNS, verb=Defaults.VERBS, rude=Defaults.PROFANITIES
    )
