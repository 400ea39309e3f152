"""The made-up facts of a question over paragraphs, and the paragraphs that say them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .documents_texts import TEXTS
from .multihop_texts import TEXTS as MULTIHOP
from .names import draw_new, draw_person, draw_title, draw_town
from .splits import draw_in_split
from .stratified import in_turn
from .template_files import fill

RELATIONS = ("maker", "town", "born", "river", "founded")  # subject -> value
OWNER = {"maker": "work", "town": "person", "born": "person", "river": "town", "founded": "town"}
_MOST_DETAILS = 3  # of a paragraph


@dataclass(frozen=True)
class World:
    """Works, the people who made them, and the towns where these were born.

    Parameters
    ----------
    works : dict of str to dict
        By title, what the texts say about a work: kind, year, role, verb, done.
    facts : dict of str to dict of str to str
        By relation, subject -> value, for example ``facts["town"]["Ada Birch"] == "Ashton"``.
    """

    works: dict[str, dict[str, str]] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in RELATIONS})

    def values(self, work: str) -> dict[str, str]:
        """What the texts about a work, its maker and the maker's birthplace are filled with."""
        person = self.facts["maker"][work]
        town = self.facts["town"][person]
        return {
            **self.works[work], "work": work, "person": person, "town": town, "born": self.facts["born"][person],
            "river": self.facts["river"][town], "founded": self.facts["founded"][town],
        }  # fmt: skip

    def of(self, works: list[str]) -> World:
        """The part of the world that belongs to some of the works."""
        values = [self.values(work) for work in works]
        subject = {name: OWNER[name] for name in RELATIONS}
        value = {"maker": "person"}
        facts = {name: {v[subject[name]]: v[value.get(name, name)] for v in values} for name in RELATIONS}
        return World({work: self.works[work] for work in works}, facts)


def draw_world(rng: random.Random, split: str, size: int) -> World:
    """A world of ``size`` works, as many people and towns: no name, last name or year stands for two of them."""
    world, taken = World(), set()
    for _ in range(size):
        kind = rng.choice(sorted(MULTIHOP.works))
        words = MULTIHOP.works[kind]
        work = draw_new(lambda: draw_title(rng, split), taken)
        person = draw_person(rng, split)
        while person.split()[1] in taken:  # a last name may be a town's name too
            person = draw_person(rng, split)
        taken.add(person.split()[1])
        town = draw_new(lambda: draw_town(rng, split), taken)
        born = draw_new(lambda: _year(rng, split, "born", 1850, 1980), taken)
        made = draw_new(lambda born=born: str(int(born) + rng.randint(20, 44)), taken)
        world.works[work] = {"kind": kind, "role": words.role, "verb": words.verb, "done": words.done, "year": made}
        world.facts["maker"][work] = person
        world.facts["town"][person] = town
        world.facts["born"][person] = born
        world.facts["river"][town] = draw_new(lambda: _river(rng, split), taken)
        world.facts["founded"][town] = draw_new(lambda: _year(rng, split, "founded", 1050, 1690), taken)
    return world


def _year(rng: random.Random, split: str, label: str, low: int, high: int) -> str:
    return str(draw_in_split(lambda: rng.randint(low, high), label, split))


def _river(rng: random.Random, split: str) -> str:
    return draw_in_split(lambda: rng.choice(TEXTS.river_starts) + rng.choice(TEXTS.river_ends), "river", split)


@dataclass
class Paragraph:
    """A paragraph under its title.

    Parameters
    ----------
    title : str
        The work, person or town that it is about.
    kind : {"work", "person", "town"}
        Which of the three.
    template : int
        Index of the wording of its core.
    core : str
        The sentence that says its facts.
    before, after : list of str
        Sentences about details.
    """

    title: str
    kind: str
    template: int
    core: str
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its sentences."""
        return " ".join([*self.before, self.core, *self.after])

    @property
    def full(self) -> bool:
        """Whether it has as many details as it may have."""
        return len(self.before) + len(self.after) >= _MOST_DETAILS


def write_paragraphs(world: World, split: str, kinds: tuple[str, ...], key: str) -> dict[str, Paragraph]:
    """The paragraphs of a world by title, in its order; all take their wordings in turn, whichever the question asks.

    Parameters
    ----------
    world : World
        Whose facts.
    split : {"train", "eval"}
        Whose wordings.
    kinds : tuple of str
        Kinds of paragraphs: ``"work"``, ``"person"``, perhaps ``"town"``.
    key : str
        Row of problems and number of this one, ``"row|number"``: the first paragraph of a kind goes through the
        wordings from problem to problem, the next ones go on from there.
    """
    row, _, number = key.rpartition("|")
    found = {}
    for place, work in enumerate(world.works):
        values = world.values(work)
        for kind in kinds:
            texts = TEXTS.paragraphs[kind].of(split)
            start = in_turn(f"{row}|{kind}", int(number), len(texts))
            template = (start + place) % len(texts)
            found[values[kind]] = Paragraph(values[kind], kind, template, fill(texts[template], values))
    return found


def add_detail(paragraph: Paragraph, rng: random.Random, split: str) -> tuple[list[str], str] | None:
    """Add a sentence before or behind the core; the list it went to and the sentence, None where all are there."""
    present = paragraph.before + paragraph.after
    n = rng.randint(11, 40)
    new = [fill(text, {"n": n}) for text in TEXTS.details[paragraph.kind].of(split)]
    starts = {sentence[:12] for sentence in present}  # the same sentence with another number is no new one
    new = [sentence for sentence in new if sentence[:12] not in starts]
    if paragraph.full or not new:
        return None
    place, sentence = rng.choice((paragraph.before, paragraph.after)), rng.choice(new)
    place.append(sentence)
    return place, sentence
