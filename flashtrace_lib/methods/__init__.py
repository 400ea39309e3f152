"""Attribution methods, one file each. A new method is one file and one line here."""

from ..attribution import Attribution, Hop, Method
from .attnlrp import AttnLRP
from .cage import CAGE
from .clp import CLP
from .flashtrace import FlashTrace
from .ifr import IFR
from .ig_attn import IGAttention
from .integrated_gradients import IntegratedGradients
from .perturbation import Perturbation
from .random import Position, Random
from .reagent import ReAGent
from .rollout import Rollout
from .target_variants import LastToken, MeanPooling, Positional

METHODS: dict[str, type[Method]] = {
    FlashTrace.name: FlashTrace,
    IFR.name: IFR,
    Perturbation.name: Perturbation,
    CLP.name: CLP,
    ReAGent.name: ReAGent,
    IntegratedGradients.name: IntegratedGradients,
    IGAttention.name: IGAttention,
    AttnLRP.name: AttnLRP,
    CAGE.name: CAGE,
    Rollout.name: Rollout,
    Random.name: Random,
    Position.name: Position,
    LastToken.name: LastToken,
    MeanPooling.name: MeanPooling,
    Positional.name: Positional,
}

__all__ = [
    "CAGE", "CLP", "IFR", "METHODS", "Attribution", "AttnLRP", "FlashTrace", "Hop", "IGAttention",
    "IntegratedGradients", "LastToken", "MeanPooling", "Method", "Perturbation", "Position", "Positional", "Random",
    "ReAGent", "Rollout",
]  # fmt: skip
