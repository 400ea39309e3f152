"""Sections of a profile for single experiments: pilot study, efficiency, ablations, generalisation, open questions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..settings import Settings


@dataclass(frozen=True)
class PilotProfile(Settings, section="pilot"):
    """Settings of the pilot study (paper, section 3.2 and appendix I): one chain of assignments in noise.

    Parameters
    ----------
    model : str
        A model that reasons; what ``load_model`` takes.
    hops : tuple of int
        Assignments to follow; the reasoning grows with them.
    samples : int
        Correctly answered samples per number of hops.
    forced_from : int, optional
        Assignments from which on the reference reasoning is read (teacher-forced) and nothing is generated: for
        reasonings that the model cannot finish, and whose attempts would take hours.
    compare_hops : int
        Assignments of the problems that are answered with and without reasoning.
    compare_samples : int
        Samples that are answered correctly both with and without reasoning.
    compare_length : int
        Length of their prompts, tokens: short, since perturbation takes a pass for every sentence.
    methods : tuple of str
        Methods whose recovery is compared.
    length : int
        Length of the prompts of growing reasoning, tokens.
    max_new_tokens : int
        Longest response, tokens.
    cost_input, cost_reasoning : int, tuple of int
        Lengths of input and reasoning in the cost measurement, tokens; the reasoning's ascend.
    cost_limit : int
        A method is measured up to the first length that takes it longer than this, s, at least at three lengths;
        longer ones are extrapolated.
    cost_runs : int
        Runs of each length; their median is reported.
    """

    model: str = "embedded"
    hops: tuple[int, ...] = (1, 2, 4, 6, 8, 10)
    samples: int = 4
    forced_from: int | None = None
    compare_hops: int = 2
    compare_samples: int = 20
    compare_length: int = 256
    methods: tuple[str, ...] = ("perturbation", "ifr", "attnlrp", "flashtrace")
    length: int = 512
    max_new_tokens: int = 384
    cost_input: int = 256
    cost_reasoning: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    cost_limit: int = 60
    cost_runs: int = 1


@dataclass(frozen=True)
class EfficiencyProfile(Settings, section="efficiency"):
    """Settings of the measurements of time and memory (paper, section 5.1, Fig. 4, appendices C and L).

    Parameters
    ----------
    model : str
        As ``load_model`` takes it; its weights do not matter, its shape does.
    inputs : tuple of int
        Lengths of the input I, tokens, ascending, each with a generation of ``fixed_generation``.
    generations : tuple of int
        Lengths of the generation T and O, tokens, ascending, each with an input of ``fixed_input``.
    fixed_input, fixed_generation : int
        The length that stays fixed, tokens; 100 in the paper.
    methods : tuple of str
        Methods to measure; ``"ifr_one_by_one"`` is IFR with one target row at a time, as the paper runs it.
    runs : int
        Runs of each size for its time, and as many for its peak of memory; their medians are reported.
    time_limit : int
        Longest run, s.
    memory_limit : int
        Most memory above the loaded model's, GiB.
    headline_generations : tuple of int, optional
        Lengths of the generation, tokens, ascending, at which FlashTrace, AttnLRP and both forms of IFR are measured
        under a limit of their own, once: the paper's headline is of 5,000 tokens, where IFR takes up to an hour.
    headline_limit : int
        Longest run there, s.
    attention_inputs : tuple of int
        Lengths of the input at which implementations of the attention sums are compared (Table 9), tokens, ascending.
    tools : tuple of str
        Published tools to measure beside the methods, of `other_tools.ADAPTERS`; those not installed are left out.
    pareto_input : int
        Length of the input, one of ``inputs``, whose cost is plotted against faithfulness (Fig. 4e), tokens.
    pareto_methods : tuple of str
        Methods of Fig. 4e that are measured for it alone, at its lengths, beside ``methods``.
    """

    model: str = "embedded-base"
    inputs: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    generations: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    fixed_input: int = 128
    fixed_generation: int = 32
    methods: tuple[str, ...] = (
        "perturbation",
        "reagent",
        "clp",
        "ifr",
        "ifr_one_by_one",
        "attnlrp",
        "ig",
        "ig_attn",
        "cage",
        "rollout",
        "flashtrace",
    )
    runs: int = 3
    time_limit: int = 20
    memory_limit: int = 6
    headline_generations: tuple[int, ...] | None = None
    headline_limit: int = 7200
    attention_inputs: tuple[int, ...] = (512, 1024, 2048)
    tools: tuple[str, ...] = (
        "captum_ablation",
        "inseq_gradient",
        "published_flashtrace",
        "published_flashtrace_recompute",
    )
    pareto_input: int = 256
    pareto_methods: tuple[str, ...] = field(default=(), metadata={"may_be_empty": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pareto_input not in self.inputs:
            raise ValueError(
                f"efficiency.pareto_input {self.pareto_input!r} is none of efficiency.inputs {list(self.inputs)}: only "
                "those are measured"
            )


@dataclass(frozen=True)
class AblationsProfile(Settings, section="ablations"):
    """Settings of the ablations (paper, appendices H, M and N); their samples are those of the other notebooks.

    Parameters
    ----------
    hops : int
        Most recursive hops K compared (Table 7).
    hop_samples : int
        Samples of MoreHopQA on which they are compared.
    cell_samples : int
        Samples of a cell of Table 1, the first ones, that the ablations take.
    curve_samples : int
        Samples of each RULER cell on which target aggregations are compared by RISE and MAS. Recovery, which costs one
        pass, compares them on all of ``cell_samples``.
    worst : int
        Samples of the lowest recovery that the failure analysis compares with the others.
    """

    hops: int = 3
    hop_samples: int = 100
    cell_samples: int = 100
    curve_samples: int = 20
    worst: int = 50


@dataclass(frozen=True)
class GeneralisationProfile(Settings, section="generalisation"):
    """Settings of the comparison of two models (paper, section 5.2 and Table 5).

    Parameters
    ----------
    model : str
        The second model, as ``load_model`` takes it. The first is the profile's.
    cells : tuple of str, optional
        RULER cells, a subset of the profile's. Default: all of them.
    tasks : tuple of str
        Reasoning tasks, see `tasks.datasets`; the paper's "MATH" holds problems of GSM8K.
    methods : tuple of str
        Methods compared on both models.
    ruler_samples, task_samples : int
        Samples of a RULER cell and of a task, at most the profile's own.
    curve_samples : int
        Samples of a cell, the first ones, for the deletion curves (RISE, MAS), of either model.
    mask_samples : int
        Samples of a cell of the second model, the first ones, for LDS; may be 0. Teacher-forced cells get none.
    step_by_step : tuple of str
        RULER cells that the second model answers once more with its reasoning drawn out; right answers alone are kept.
    step_tokens : int
        Longest of these responses, tokens.
    step_curves : int
        Samples of these cells, the first ones, with deletion curves; may be 0.
    max_tries : int
        Problems that the second model tries until it has these samples.
    max_new_tokens : int
        Longest response of the second model, tokens.
    new_tokens : dict of str to int
        The same for single RULER cells, tokens, in place of ``max_new_tokens``.
    """

    model: str = "embedded-base"
    cells: tuple[str, ...] | None = None
    tasks: tuple[str, ...] = field(default=("gsm8k",), metadata={"may_be_empty": True})
    methods: tuple[str, ...] = ("perturbation", "ifr", "attnlrp", "flashtrace", "random")
    ruler_samples: int = 2
    task_samples: int = 5
    curve_samples: int = 100
    mask_samples: int = field(default=0, metadata={"least": 0})
    step_by_step: tuple[str, ...] = field(default=(), metadata={"may_be_empty": True})
    step_tokens: int = 256
    step_curves: int = field(default=0, metadata={"least": 0})
    max_tries: int = 10
    max_new_tokens: int = 128
    new_tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tries < max(self.ruler_samples, self.task_samples):
            raise ValueError(f"generalisation.max_tries {self.max_tries} is less than the samples wanted: raise it")


@dataclass(frozen=True)
class OpenQuestionsProfile(Settings, section="open_questions"):
    """Settings of the experiments beyond the paper; the samples are those of the RULER cells.

    Parameters
    ----------
    steps : int
        Steps of the deletion curve.
    deletion_samples, exact_samples : int
        Samples of each half, tuning and held-out, for the deletion curves and for the exact rollout, which takes a row
        for every generated token: the shortest ones.
    causal_samples : int
        Samples that are answered again with a sentence masked: the shortest ones.
    """

    steps: int = 20
    deletion_samples: int = 20
    exact_samples: int = 10
    causal_samples: int = 20


@dataclass(frozen=True)
class AnatomyProfile(Settings, section="rise_anatomy"):
    """Settings of the chapter on what RISE measures.

    Parameters
    ----------
    cells : tuple of str
        RULER cells of the profile.
    samples : int
        First samples of each of them.
    word_problems : int
        First samples of the word problems.
    draws : int
        Random rankings of tokens, and of sentences.
    steps : int
        Steps of the deletion curve.
    padded_model : str
        As ``load_model`` takes it: the profile's model after a training on masked prompts.
    """

    cells: tuple[str, ...] = ("mq_q2", "mq_q4", "mv_v2", "h2_c3", "h4_c1", "h6_c1")
    samples: int = 5
    word_problems: int = 20
    draws: int = 3
    steps: int = 20
    padded_model: str = "data/adapter_padded"


@dataclass(frozen=True)
class BetterProfile(Settings, section="better_flashtrace"):
    """How much of `experiments.better_plan` is measured; the defaults are the whole plan.

    Parameters
    ----------
    cells : tuple of str, optional
        Keys of ``better_plan.CELLS``. Default: all of them.
    methods : tuple of str, optional
        Settings and baselines, keys of ``better_plan.LABELS``; the chapter reads ``paper``, ``candidate`` and
        ``second_candidate``. Default: all of them. Random is always among them.
    length : int
        Of the prompts of RULER and HotpotQA, tokens.
    held_out_seed : int
        Of the held-out cells, on top of the profile's seed, which the tuning cells have alone. Seed 1 was looked at
        when the second candidate was chosen.
    samples, tries : int
        Right answers wanted of a cell, and problems that are tried for them.
    question_samples : int
        Responses wanted of a cell of real questions, right or wrong.
    mask_samples, masks : int
        Samples of a cell, the first ones, with LDS, and the masks of each.
    drop_samples : int
        Samples of a cell, the first ones, with the top-k drop of the methods in ``better_plan.MAIN``.
    draws, drop_draws : int
        Random rankings, for all metrics but the top-k drop, and for it.
    max_new_tokens : int
        Longest response, tokens.
    fallback : {"none", "teacher-forced", "unfiltered"}
        What stands for answers that are not right, see `responses.collect`.
    """

    cells: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    length: int = 1024
    held_out_seed: int = 2
    samples: int = 8
    tries: int = 30
    question_samples: int = 8
    mask_samples: int = field(default=4, metadata={"least": 0})
    masks: int = 64
    drop_samples: int = field(default=4, metadata={"least": 0})
    draws: int = 20
    drop_draws: int = 3
    max_new_tokens: int = 384
    fallback: str = field(default="none", metadata={"choices": ("none", "teacher-forced", "unfiltered")})
