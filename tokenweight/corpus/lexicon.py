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
