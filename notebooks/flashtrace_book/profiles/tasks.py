"""Sections of a profile that say which samples are explained: RULER cells, reasoning tasks, HotpotQA."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashtrace_lib.tasks.datasets import REAL, SOURCES
from flashtrace_lib.tasks.registry import TASKS
from flashtrace_lib.tasks.responses import ALL_MODES, FALLBACKS

from ..settings import Settings


@dataclass(frozen=True)
class RulerProfile(Settings, section="ruler"):
    """Settings of the RULER cells (paper, section 5 and appendix E.1).

    Parameters
    ----------
    cells : tuple of str
        Table cells, such as ``"mq_q2"``, ``"h4_c1"``; may be empty.
    length : int
        Length of the whole prompt, tokens.
    lengths : dict of str to int
        Lengths of single cells, tokens, in place of ``length``.
    haystack : {"essay", "essay-prefix", "noise"}, optional
        Text that hides the needles and assignments. Default: the benchmark's, essays for needles, noise for
        assignments.
    samples : int
        Correctly answered samples per cell.
    max_tries : int
        Most examples tried per cell to find them.
    max_new_tokens : int
        Longest response, tokens.
    new_tokens : dict of str to int
        The same for single cells, tokens, in place of ``max_new_tokens``.
    one_shot : bool or "auto"
        Whether variable tracking starts with a worked example, as the benchmark's does; ``"auto"``: if the length
        leaves room for it.
    """

    cells: tuple[str, ...] = field(metadata={"may_be_empty": True})  # empty where all records are real
    length: int
    samples: int
    max_tries: int
    max_new_tokens: int
    haystack: str | None = field(default=None, metadata={"choices": ("essay", "essay-prefix", "noise")})
    one_shot: bool | str = field(default="auto", metadata={"choices": (True, False, "auto")})
    lengths: dict[str, int] = field(default_factory=dict)
    new_tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tries < self.samples:
            raise ValueError(f"ruler.max_tries {self.max_tries} is less than ruler.samples {self.samples}: raise it")
        for name, by_cell in (("lengths", self.lengths), ("new_tokens", self.new_tokens)):
            for cell in by_cell:
                if cell not in self.cells:
                    raise ValueError(f"a cell of ruler.{name} must be one of {', '.join(self.cells)}, got {cell!r}")

    def length_of(self, cell: str) -> int:
        """Prompt length of ``cell``, tokens."""
        return self.lengths.get(cell, self.length)

    def new_tokens_of(self, cell: str) -> int:
        """Longest response in ``cell``, tokens."""
        return self.new_tokens.get(cell, self.max_new_tokens)


@dataclass(frozen=True)
class EvaluationProfile(Settings, section="evaluation"):
    """On how many samples of a cell each kind of metric is measured: what costs a pass gets many, a curve few.

    Parameters
    ----------
    mask_samples : int
        Samples of a cell, the first ones, for the metrics of sentence ablations (LDS, top-k drop, keep-k); may be 0.
    masks : int
        Random ablations of a sample; all methods share them.
    curve_samples : int
        Samples of a cell, the first ones, for the deletion curves (RISE, MAS).
    curves : dict of str to int
        The same for single cells, in place of ``curve_samples``; may be 0.
    few_methods : tuple of str
        Methods that take a pass for every unit, compared on the first ``few_samples`` of a cell alone.
    few_samples : int
        See ``few_methods``.
    few_curve_samples : int, optional
        Of these, the first ones that get deletion curves and top-k drops; may be 0. Default: all of them that any
        method has.
    draws : int
        Draws of the random baselines, of tokens and of sentences, for metrics without a forward pass of their own.
    curve_draws : int
        Draws for the deletion curves and the top-k drop.
    """

    mask_samples: int = field(default=100, metadata={"least": 0})
    masks: int = 64
    curve_samples: int = 100
    curves: dict[str, int] = field(default_factory=dict, metadata={"least": 0})
    few_methods: tuple[str, ...] = field(default=(), metadata={"may_be_empty": True})
    few_samples: int = 2
    few_curve_samples: int | None = field(default=None, metadata={"least": 0})
    draws: int = 20
    curve_draws: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.curve_draws > self.draws:
            raise ValueError(
                f"evaluation.curve_draws {self.curve_draws} exceeds draws {self.draws}, of which they are the first"
            )

    def curves_of(self, cell: str) -> int:
        """Samples of ``cell`` that get deletion curves."""
        return self.curves.get(cell, self.curve_samples)

    @property
    def few_drop_samples(self) -> int:
        """Samples of a cell of which ``few_methods`` get top-k drops, where they are among ``mask_samples``."""
        return min(self.few_samples, self.few_samples if self.few_curve_samples is None else self.few_curve_samples)

    def few_curves_of(self, cell: str) -> int:
        """Samples of ``cell`` of which ``few_methods`` get deletion curves."""
        return min(self.few_drop_samples, self.curves_of(cell))


@dataclass(frozen=True)
class ReasoningProfile(Settings, section="reasoning"):
    """Settings of the reasoning and code tasks (paper, sections 5.1 and 5.2, appendices E.2 to E.4).

    Parameters
    ----------
    source : {"standin", "synthetic", "folder", "hub"}
        Source of the records, see `tasks.datasets`.
    shuffle : bool
        Real records are drawn at random, as in the paper; else they are taken in the order of their file, so that a
        longer file does not change which are taken.
    samples : int
        Correctly answered samples per task.
    max_tries : int
        Most records tried per task to find them.
    tries : dict of str to int
        The same for single tasks, in place of ``max_tries``.
    modes : dict of str to str
        How a task is put to a model without think tags, see `responses.prompt_settings`.
    unfiltered : tuple of str
        Tasks of which the first finished responses are explained, right or wrong (§), without looking for right ones.
    direct : dict of str to int
        Tasks that are also put without a word about reasoning, and the records tried (`experiments.direct_answers`).
    max_new_tokens : int
        Longest response, tokens.
    fallback : {"teacher-forced", "unfiltered", "none"}
        Responses to explain where the model is right too rarely: the reference reasoning, the model's own finished
        responses whether right or wrong, or none.
    fallbacks : dict of str to str
        The same for single tasks, in place of ``fallback``.
    methods : tuple of str, optional
        Methods to compare. Default: the profile's.
    rollout_samples : int
        Samples of the comparison with the exhaustive rollout, which takes a row for every generated token.
    """

    source: str = field(default="standin", metadata={"choices": SOURCES})
    shuffle: bool = True
    samples: int = 20
    max_tries: int = 60
    tries: dict[str, int] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    unfiltered: tuple[str, ...] = field(default=(), metadata={"may_be_empty": True})
    direct: dict[str, int] = field(default_factory=dict)
    max_new_tokens: int = 384
    fallback: str = field(default="teacher-forced", metadata={"choices": FALLBACKS})
    fallbacks: dict[str, str] = field(default_factory=dict)
    methods: tuple[str, ...] | None = None
    rollout_samples: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tries < self.samples:
            raise ValueError(f"reasoning.max_tries {self.max_tries} is less than samples {self.samples}: raise it")
        for name in (*self.tries, *self.modes, *self.unfiltered, *self.direct, *self.fallbacks):
            if name not in TASKS:
                raise ValueError(f"reasoning: no task {name!r}: known are {', '.join(TASKS)}")
        for task, mode in self.modes.items():
            if mode not in ALL_MODES:
                raise ValueError(f"reasoning.modes.{task} must be one of {', '.join(ALL_MODES)}, got {mode!r}")
        for task, fallback in self.fallbacks.items():
            if fallback not in FALLBACKS:
                raise ValueError(f"reasoning.fallbacks.{task} must be one of {', '.join(FALLBACKS)}, got {fallback!r}")

    def tries_of(self, task: str) -> int:
        """Most records tried of ``task``."""
        return self.tries.get(task, self.max_tries)

    def fallback_of(self, task: str) -> str:
        """What is explained of ``task`` where the model is right too rarely."""
        return self.fallbacks.get(task, self.fallback)

    @property
    def is_real(self) -> bool:
        """Whether records are others' and not made here: they are not shown, and what quotes them is sealed."""
        return self.source in REAL


@dataclass(frozen=True)
class HotpotProfile(Settings, section="hotpotqa"):
    """Settings of HotpotQA in long contexts (paper, appendices E.1 and K); its records come from ``reasoning.source``.

    Parameters
    ----------
    length : int
        Length of the prompts of Table 1, tokens.
    samples : int
        Correctly answered samples.
    max_tries : int
        Most records tried to find them.
    max_new_tokens : int
        Longest response, tokens.
    gold : {"sentence", "paragraph"}
        The evidence: supporting sentences, or their paragraphs.
    long_lengths : tuple of int
        Lengths of the prompts of Table 8, tokens, ascending.
    long_samples : int
        Samples per length, right or wrong.
    long_methods : tuple of str
        Methods whose deletion curves are compared at these lengths.
    """

    length: int = 1024
    samples: int = 66
    max_tries: int = 200
    max_new_tokens: int = 384
    gold: str = field(default="sentence", metadata={"choices": ("sentence", "paragraph")})
    long_lengths: tuple[int, ...] = (2048, 4096)
    long_samples: int = 66
    long_methods: tuple[str, ...] = ("attnlrp", "ifr", "flashtrace", "random")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tries < max(self.samples, self.long_samples):
            raise ValueError(f"hotpotqa.max_tries {self.max_tries} is less than the samples wanted: raise it")
