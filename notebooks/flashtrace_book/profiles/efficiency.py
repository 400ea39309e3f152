"""Section of a profile: what the measurements of time and memory are run with."""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_ascending, check_count, check_names, check_type

CONTESTANTS = (
    "perturbation", "reagent", "clp", "ifr", "ifr_one_by_one", "attnlrp", "ig", "ig_attn", "cage", "rollout",
    "flashtrace",
)  # fmt: skip
TOOLS = ("captum_ablation", "inseq_gradient", "published_flashtrace", "published_flashtrace_recompute")


@dataclass(frozen=True)
class EfficiencyProfile:
    """Settings of the measurements of time and memory (paper, section 5.1, Fig. 4, appendices C and L).

    Parameters
    ----------
    model : str
        What ``load_model`` takes; its weights do not matter, its shape does.
    inputs : tuple of int
        Lengths of the input I, tokens, ascending; the generation has ``fixed_generation`` then.
    generations : tuple of int
        Lengths of the generation T and O, tokens, ascending; the input has ``fixed_input`` then.
    fixed_input, fixed_generation : int
        The length that is held, tokens; 100 in the paper.
    methods : tuple of str
        Methods to measure; ``"ifr_one_by_one"`` is IFR with one target row at a time, as the paper runs it.
    runs : int
        Runs of each size, of which the median counts.
    time_limit : int
        Longest run, s.
    memory_limit : int
        Most memory over the loaded model, GiB.
    attention_inputs : tuple of int
        Lengths of the input at which the ways to the sums of attention are compared (Table 9), tokens, ascending.
    tools : tuple of str
        Published tools to measure beside the methods, of `other_tools.ADAPTERS`; those not installed are left out.
    pareto_input : int
        Length of the input, one of ``inputs``, whose cost is set against faithfulness (Fig. 4e), tokens.
    """

    model: str = "embedded-base"
    inputs: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    generations: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    fixed_input: int = 128
    fixed_generation: int = 32
    methods: tuple[str, ...] = CONTESTANTS
    runs: int = 3
    time_limit: int = 20
    memory_limit: int = 6
    attention_inputs: tuple[int, ...] = (512, 1024, 2048)
    tools: tuple[str, ...] = TOOLS
    pareto_input: int = 256

    def __post_init__(self) -> None:
        check_type(self.model, "efficiency.model", str)
        object.__setattr__(self, "methods", check_names(self.methods, "efficiency.methods"))
        object.__setattr__(self, "tools", check_names(self.tools, "efficiency.tools"))
        for name in ("fixed_input", "fixed_generation", "runs", "time_limit", "memory_limit"):
            check_count(getattr(self, name), f"efficiency.{name}", least=1)
        for name in ("inputs", "generations", "attention_inputs"):
            object.__setattr__(self, name, check_ascending(getattr(self, name), f"efficiency.{name}"))
        if self.pareto_input not in self.inputs:
            raise ValueError(
                f"efficiency.pareto_input {self.pareto_input!r} is none of efficiency.inputs {list(self.inputs)}: only "
                "those are measured"
            )
