"""Groups of samples: problems of a task put to a model, its answers kept or forced, and methods measured on them."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import pandas as pd
import torch
from tqdm import tqdm

from flashtrace_lib.attribution import Method
from flashtrace_lib.evaluation import evaluate
from flashtrace_lib.evaluation.ablations import masks_beside
from flashtrace_lib.files import root
from flashtrace_lib.methods import METHODS, FlashTrace
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.sample import Sample
from flashtrace_lib.store import Store
from flashtrace_lib.tasks.datasets import task_examples
from flashtrace_lib.tasks.example import Example
from flashtrace_lib.tasks.responses import FORCED, NOTHING, UNFILTERED, Collection, collect
from flashtrace_lib.tasks.ruler import ruler_examples
from flashtrace_lib.tasks.ruler_problems import RulerCell
from flashtrace_lib.tasks.splits import in_split
from flashtrace_lib.text.offsets import tokenise

from .. import paths
from ..export import cell_row, method_rows, sample_row
from ..profile import Profile, read
from ..results import CURVE
from ..run import load_profile_model
from .code_targets import OnCode
from .documents import documents_examples

RULER, QUESTIONS = "ruler", "questions"
KEEP = {  # which answers are kept -> options of `responses.collect`
    "right": {"fallback": NOTHING, "give_up": False},
    "right or forced": {"fallback": FORCED},
    "finished": {"fallback": UNFILTERED, "filtered": False},
}
_PUNCTUATION, _CHAIN = re.compile(r"[,.\s]+"), re.compile(r"h(\d+)_c(\d+)$")


@dataclass(frozen=True)
class Plan:
    """What is measured on the first samples of each cell.

    Parameters
    ----------
    methods : tuple of str
        Labels: of ``METHODS`` or of the profile's ``methods``.
    samples, masks, curves : int
        Samples of a cell, the first ones, for rankings, for LDS, and for deletion curves.
    n_masks, draws : int
        Masks of a sample for LDS, and draws of random rankings for it.
    tolerance : float
        Of deletion curves, see `evaluate`.
    sentences : int
        Only samples with so many sentences in I, or fewer: for methods that take a pass for each.
    short_first : int
        Those with so many sentences in I, or fewer, come first.
    """

    methods: tuple[str, ...]
    samples: int = 10_000
    masks: int = 0
    curves: int = 0
    n_masks: int = 64
    draws: int = 20
    tolerance: float = 0.0
    sentences: int = 10_000
    short_first: int = 10_000


@dataclass(frozen=True)
class Group:
    """Samples of one task and model.

    Parameters
    ----------
    model : str
        Of the profile's ``models``.
    task : str
        ``"ruler"``, ``"questions"``, or a data set of `tasks.registry.TASKS`.
    plans : tuple of dict
        What is measured, see `Plan`.
    cells : tuple of str
        Of RULER; a chain of any length may be named, ``h16_c1``.
    name : str
        What the cells are called, ``{cell}`` being their name. Default: that.
    length : int
        Tokens of the prompt (RULER, HotpotQA).
    haystack : str, optional
    held_out : bool
        Names and numbers of RULER that no adapter was trained on; always so for a model that is ``held_out``.
    seed : int
        On top of the profile's.
    samples, tries, max_new_tokens : int
        Answers wanted, problems tried for them, and the longest answer.
    new_tokens : dict of str to int
        The longest answer of single cells.
    mode : str, optional
        How it is asked, see `responses.prompt_settings`.
    keep : {"right", "right or forced", "finished"}
        Right answers; these or, where they are too few, the reference answer, teacher-forced; finished answers.
    source : {"folder", "hub"}
        Of a data set's records.
    shuffle : bool
        Draw records at random, as the paper does, and not in the order of their file.
    unit_tests : bool
        Code is right where it passes the exercise's own tests.
    """

    model: str
    task: str
    plans: tuple[Mapping[str, Any], ...]
    cells: tuple[str, ...] = ()
    name: str = "{cell}"
    length: int = 1024
    haystack: str | None = None
    held_out: bool = False
    seed: int = 0
    samples: int = 16
    tries: int = 60
    max_new_tokens: int = 384
    new_tokens: Mapping[str, int] | None = None
    mode: str | None = None
    keep: str = "right or forced"
    source: str = "folder"
    shuffle: bool = False
    unit_tests: bool = False

    def __post_init__(self) -> None:
        if self.keep not in KEEP:
            raise ValueError(f"keep must be one of {', '.join(KEEP)}, got {self.keep!r}")
        if (self.task == RULER) != bool(self.cells):
            raise ValueError("a group of task ruler needs cells, and no other has any")


@lru_cache(maxsize=2)
def _loaded(profile_name: str, key: str, profile_model: str) -> tuple[torch.nn.Module, Any]:
    return load_profile_model(_PROFILES[profile_name], profile_model)


_PROFILES: dict[str, Profile] = {}


def model_of(profile: Profile, model: str) -> tuple[torch.nn.Module, Any]:
    """A model of the profile and its tokenizer; the last two stay loaded."""
    _PROFILES[profile.name] = profile
    return _loaded(profile.name, profile.models[model].load, model)


def make(profile: Profile, name: str, settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of all groups of a section."""
    rows = []
    for number, data in enumerate(settings):
        where = f"results.{name}.groups[{number}]"
        group = read(Group, data, where)
        plans = [read(Plan, plan, f"{where}.plans") for plan in group.plans]
        store, collections = Store(paths.working_store(profile.name, name)), group_collections(profile, group)
        rows += rows_of_group(profile, group, plans, collections, store)
    return rows


def rows_of_group(
    profile: Profile, group: Group, plans: Iterable[Plan], collections: Mapping[str, Collection], store: Store
) -> list[dict[str, Any]]:
    """Measure the plans of a group on its samples, and return all rows."""
    model, tokenizer = model_of(profile, group.model)
    rows, samples = [], [sample for collection in collections.values() for sample in collection.samples]
    for plan in plans:
        measure(profile, plan, samples, model, tokenizer, store)
    store.compact()
    masks = masks_beside(store)
    for cell, collection in collections.items():
        rows.append(cell_row(cell, collection, group.model))
        rows += [sample_row(s, group.model, cell, shown=not quotes_essays(s)) for s in collection.samples]
    records = store.records()
    return rows + (
        method_rows(records, masks.records() if len(masks) else pd.DataFrame(), samples) if len(records) else []
    )


def measure(
    profile: Profile, plan: Plan, samples: Sequence[Sample], model: torch.nn.Module, tokenizer: Any, store: Store
) -> None:
    """Rankings, LDS and deletion curves of a plan's methods; what is stored is not computed again."""
    lengths = [(len(s.sentences_in(s.segments.prompt)), s) for s in samples]
    samples = [s for n, s in sorted(lengths, key=lambda pair: pair[0] > plan.short_first) if n <= plan.sentences]
    named = [label for label in plan.methods if not label.startswith("random")]
    labelled = {label: method_named(profile, label, tokenizer) for label in named}
    random = [label for label in plan.methods if label.startswith("random")]
    one, drawn = (random_draws(random, n) for n in (1, plan.draws))
    how = {"store": store, "steps": profile.steps, "masks": plan.n_masks, "tolerance": plan.tolerance}
    how["scorer"] = Scorer(model, precision="auto")
    for methods, part, metrics in (
        (labelled | one, first_of_cells(samples, plan.samples), ("recovery",)),
        (labelled | drawn, first_of_cells(samples, plan.masks), ("lds",)),
        (labelled | one, first_of_cells(samples, plan.curves), CURVE),
    ):
        if part and methods:
            evaluate(model, methods, part, metrics=metrics, **how)


def random_draws(names: Iterable[str], n: int) -> dict[str, Method]:
    """``random/0``, ``random/1``, … for each name of a random baseline: as evaluated, the first with its default seed.

    One draw is as noisy as one method on one sample; the mean of 20 adds a twentieth of that variance to a paired
    difference.
    """
    return {f"{name}/{seed}": METHODS[name](seed=seed) for name in names for seed in range(n)}


def method_named(profile: Profile, label: str, tokenizer: Any = None) -> Method:
    """A method by its label; one on a part of generated code has ``code``: the part.

    ``skip_tokens: punctuation`` stands for those of the tokenizer that are commas, full stops or white space,
    ``released: true`` for `FlashTrace.released`.
    """
    options = dict(profile.methods.get(label, {"method": label}))
    if options.get("skip_tokens") == "punctuation":
        options["skip_tokens"] = () if tokenizer is None else punctuation_tokens(tokenizer)
    name, part = options.pop("method"), options.pop("code", None)
    if options.pop("released", False) and tokenizer is not None:
        return FlashTrace.released(tokenizer, **options)
    if name not in METHODS:
        raise ValueError(f"profile {profile.name}: no method {name!r}; known are {', '.join(METHODS)}")
    try:
        method = METHODS[name](**{k: tuple(v) if isinstance(v, list) else v for k, v in options.items()})
    except TypeError as error:
        raise ValueError(f"profile {profile.name}, method {label}: {error}") from None
    return method if part is None else OnCode(method, part)


def punctuation_tokens(tokenizer: Any) -> tuple[int, ...]:
    """Ids of the tokens that hold nothing but commas, full stops and white space, ascending."""
    special = set(tokenizer.all_special_ids)
    texts = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    return tuple(i for i, text in enumerate(texts) if i not in special and _PUNCTUATION.fullmatch(text))


def first_of_cells(samples: Iterable[Sample], n: int) -> list[Sample]:
    """The first ``n`` samples of each cell, in their order."""
    taken: dict[str, int] = {}
    kept = []
    for sample in samples:
        cell = str(sample.metadata.get("cell", ""))
        taken[cell] = taken.get(cell, 0) + 1
        kept += [sample] if taken[cell] <= n else []
    return kept


def group_collections(profile: Profile, group: Group) -> dict[str, Collection]:
    """Answers of the group's model to its problems, by cell; they are kept in a store of the profile's."""
    model, tokenizer = model_of(profile, group.model)
    store, found = Store(paths.working_store(profile.name, "responses")), {}
    for cell, examples in tqdm(group_examples(profile, group, tokenizer).items(), desc=group.task):
        named = group.name.format(cell=cell)
        examples = [replace(example, cell=named) for example in examples]
        limit = (group.new_tokens or {}).get(cell, group.max_new_tokens)
        options = {"max_new_tokens": limit, "mode": group.mode, "store": store, **KEEP[group.keep]}
        found[named] = collect(model, tokenizer, examples, group.samples, **options)
    store.compact()
    return found


def group_examples(profile: Profile, group: Group, tokenizer: Any) -> dict[str, list[Example]]:
    """Problems of a group, by cell, in the order in which they are tried."""
    seed = profile.seed + group.seed
    if group.task == RULER:
        keep = partial(in_split, split="eval") if group.held_out or profile.models[group.model].held_out else None
        asked = partial(ruler_examples, tokenizer, length=group.length, n=group.tries, seed=seed, keep=keep)
        hay = {cell: None if cell.startswith("h") else group.haystack for cell in group.cells}
        return {cell: asked(cell=ruler_cell(cell), haystack=hay[cell]) for cell in group.cells}
    if group.task == QUESTIONS:
        return {group.task: question_examples()}
    where = {"source": group.source, "folder": paths.data_dir(profile.data_dir) if group.source == "folder" else None}
    where["seed"] = seed if group.shuffle else None
    if group.task == "hotpotqa":
        count = lambda text: len(tokenise(tokenizer, text)[0])  # noqa: E731
        examples = documents_examples(group.tries, group.length, count, **where)
    else:
        examples = task_examples(group.task, group.tries, **where)
    if group.unit_tests:
        examples = [replace(example, scorer="unit_tests") for example in examples]
    return {group.task: examples}


def question_examples() -> list[Example]:
    """The plain questions of ``data/questions.json``, chosen before any score of them was seen (00)."""
    examples = []
    for i, one in enumerate(json.loads((root() / "data" / "questions.json").read_text(encoding="utf-8"))):
        n, start = len(one["content"]), one["content"].index(one["gold"])
        examples.append(Example(
            id=f"question-{i}", task=QUESTIONS, cell=QUESTIONS, prompt=f"{one['content']}\n\n{one['question']}",
            answers=(one["answer"],), evidence=((start, start + len(one["gold"])),), question=n + 2, haystack=(0, n),
            reasoning=one["gold"], output=f"The answer is {one['answer']}.",
        ))  # fmt: skip
    return examples


def ruler_cell(name: str) -> str | RulerCell:
    """A cell of RULER by its name, or a chain of another length."""
    chain = _CHAIN.match(name)
    return RulerCell("vt", hops=int(chain[1]), chains=int(chain[2])) if chain else name


def quotes_essays(sample: Sample) -> bool:
    """Whether a sample's prompt holds essays, which are their author's and are never copied; of hints every other."""
    every_other = sample.id.startswith("hints-") and int(sample.id.split("-")[3]) % 2 == 1
    return "-essay" in sample.id or every_other
