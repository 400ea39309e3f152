"""Sections of a profile: the settings of the RULER cells, the pilot study, the reasoning tasks, HotpotQA, ablations."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashtrace_lib.tasks.datasets import SOURCES
from flashtrace_lib.tasks.responses import FALLBACKS

from .checks import check_ascending, check_choice, check_count, check_names, check_type

_HAYSTACKS = ("essay", "essay-prefix", "noise")


@dataclass(frozen=True)
class RulerProfile:
    """Settings of the RULER cells (paper, section 5 and appendix E.1).

    Parameters
    ----------
    cells : tuple of str
        Table cells, for example ``"mq_q2"``, ``"h4_c1"``; may be empty.
    length : int
        Length of the whole prompt, tokens.
    lengths : dict of str to int
        Cells with a length of their own, tokens.
    haystack : {"essay", "essay-prefix", "noise"}, optional
        What the needles and assignments are hidden in. Default: as the benchmark, essays for needles, noise for
        assignments.
    samples : int
        Samples with a correct response wanted in each cell.
    max_tries : int
        Examples tried in each cell to find them.
    max_new_tokens : int
        Longest response, tokens.
    one_shot : bool or "auto"
        Whether variable tracking starts with a worked example, as the benchmark's does; ``"auto"``: where it leaves
        room for a haystack.
    """

    cells: tuple[str, ...]
    length: int
    samples: int
    max_tries: int
    max_new_tokens: int
    haystack: str | None = None
    one_shot: bool | str = "auto"
    lengths: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An empty list is meant: a profile of real records has no generated cells.
        object.__setattr__(self, "cells", check_names(self.cells, "ruler.cells") if self.cells != [] else ())
        for name in ("length", "samples", "max_tries", "max_new_tokens"):
            check_count(getattr(self, name), f"ruler.{name}", least=1)
        if self.max_tries < self.samples:
            raise ValueError(f"ruler.max_tries {self.max_tries} is less than ruler.samples {self.samples}: raise it")
        if self.haystack is not None:
            check_choice(self.haystack, "ruler.haystack", _HAYSTACKS)
        check_choice(self.one_shot, "ruler.one_shot", (True, False, "auto"))
        check_type(self.lengths, "ruler.lengths", dict)
        for cell, length in self.lengths.items():
            check_choice(cell, "a cell of ruler.lengths", self.cells)
            check_count(length, f"ruler.lengths.{cell}", least=1)

    def length_of(self, cell: str) -> int:
        """Prompt length of ``cell``, tokens."""
        return self.lengths.get(cell, self.length)


@dataclass(frozen=True)
class PilotProfile:
    """Settings of the pilot study (paper, section 3.2 and appendix I): one chain of assignments in noise.

    Parameters
    ----------
    model : str
        A model that reasons; what ``load_model`` takes.
    hops : tuple of int
        Assignments to follow; the reasoning grows with them.
    samples : int
        Samples with a correct response wanted for each number of hops.
    compare_hops : int
        Assignments of the problems that are answered with and without reasoning.
    compare_samples : int
        Of these, samples that are answered correctly in both ways.
    compare_length : int
        Length of their prompts, tokens: short, since perturbation takes a pass for every sentence.
    methods : tuple of str
        Methods whose recovery is compared.
    length : int
        Length of the prompts of growing reasoning, tokens.
    max_new_tokens : int
        Longest response, tokens.
    cost_input : int
        Input of the cost measurement, tokens.
    cost_reasoning : tuple of int
        Its lengths of the reasoning, tokens, ascending.
    cost_limit : int
        The first length that takes a method longer than this, s, is its last, three at least; longer ones are
        extrapolated.
    """

    model: str = "embedded"
    hops: tuple[int, ...] = (1, 2, 4, 6, 8, 10)
    samples: int = 4
    compare_hops: int = 2
    compare_samples: int = 20
    compare_length: int = 256
    methods: tuple[str, ...] = ("perturbation", "ifr", "attnlrp", "flashtrace")
    length: int = 512
    max_new_tokens: int = 384
    cost_input: int = 256
    cost_reasoning: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    cost_limit: int = 60

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", check_names(self.methods, "pilot.methods"))
        check_type(self.model, "pilot.model", str)
        counts = "samples compare_hops compare_samples compare_length length max_new_tokens cost_input cost_limit"
        for name in counts.split():
            check_count(getattr(self, name), f"pilot.{name}", least=1)
        for name in ("hops", "cost_reasoning"):
            object.__setattr__(self, name, check_ascending(getattr(self, name), f"pilot.{name}"))


@dataclass(frozen=True)
class ReasoningProfile:
    """Settings of the reasoning and code tasks (paper, sections 5.1 and 5.2, appendices E.2 to E.4).

    Parameters
    ----------
    source : {"standin", "folder", "hub"}
        Where the records come from, see `tasks.sources`.
    samples : int
        Samples with a correct response wanted of each task.
    max_tries : int
        Records tried to find them.
    max_new_tokens : int
        Longest response, tokens.
    fallback : {"teacher-forced", "unfiltered", "none"}
        What stands in where the model is right too rarely: the true chains, its own finished responses right or
        wrong, or nothing.
    methods : tuple of str, optional
        Methods to compare. Default: the profile's.
    rollout_samples : int
        Samples of the comparison with the exhaustive rollout, which takes a row for every generated token.
    """

    source: str = "standin"
    samples: int = 20
    max_tries: int = 60
    max_new_tokens: int = 384
    fallback: str = "teacher-forced"
    methods: tuple[str, ...] | None = None
    rollout_samples: int = 20

    def __post_init__(self) -> None:
        if self.methods is not None:
            object.__setattr__(self, "methods", check_names(self.methods, "reasoning.methods"))
        check_choice(self.source, "reasoning.source", SOURCES)
        check_choice(self.fallback, "reasoning.fallback", FALLBACKS)
        for name in ("samples", "max_tries", "max_new_tokens", "rollout_samples"):
            check_count(getattr(self, name), f"reasoning.{name}", least=1)
        if self.max_tries < self.samples:
            raise ValueError(f"reasoning.max_tries {self.max_tries} is less than samples {self.samples}: raise it")


@dataclass(frozen=True)
class HotpotProfile:
    """Settings of HotpotQA in long contexts (paper, appendices E.1 and K); its records come from ``reasoning.source``.

    Parameters
    ----------
    length : int
        Length of the prompts of Table 1, tokens.
    samples : int
        Samples with a correct response wanted.
    max_tries : int
        Records tried to find them.
    max_new_tokens : int
        Longest response, tokens.
    gold : {"sentence", "paragraph"}
        The evidence: supporting sentences, or their paragraphs.
    long_lengths : tuple of int
        Lengths of the prompts of Table 8, tokens, ascending.
    long_samples : int
        Samples of each of them, right or wrong.
    long_methods : tuple of str
        Methods compared there.
    """

    length: int = 1024
    samples: int = 66
    max_tries: int = 200
    max_new_tokens: int = 384
    gold: str = "sentence"
    long_lengths: tuple[int, ...] = (2048, 4096)
    long_samples: int = 66
    long_methods: tuple[str, ...] = ("attnlrp", "ifr", "flashtrace", "random")

    def __post_init__(self) -> None:
        for name in ("length", "samples", "max_tries", "max_new_tokens", "long_samples"):
            check_count(getattr(self, name), f"hotpotqa.{name}", least=1)
        if self.max_tries < max(self.samples, self.long_samples):
            raise ValueError(f"hotpotqa.max_tries {self.max_tries} is less than the samples wanted: raise it")
        check_choice(self.gold, "hotpotqa.gold", ("sentence", "paragraph"))
        object.__setattr__(self, "long_lengths", check_ascending(self.long_lengths, "hotpotqa.long_lengths"))
        object.__setattr__(self, "long_methods", check_names(self.long_methods, "hotpotqa.long_methods"))


@dataclass(frozen=True)
class AblationsProfile:
    """Settings of the ablations (paper, appendices H, M and N); their samples are those of the other notebooks.

    Parameters
    ----------
    hops : int
        Most recursive hops K compared (Table 7).
    hop_samples : int
        Samples of MoreHopQA on which they are compared.
    curve_samples : int
        Samples of each RULER cell for which ways to aggregate the target are compared by RISE and MAS; by recovery,
        which costs one pass, all are.
    worst : int
        Samples of the lowest recovery that the failure analysis holds against the others.
    """

    hops: int = 3
    hop_samples: int = 100
    curve_samples: int = 20
    worst: int = 50

    def __post_init__(self) -> None:
        for name in ("hops", "hop_samples", "curve_samples", "worst"):
            check_count(getattr(self, name), f"ablations.{name}", least=1)
