"""What linear layers hand to the functions that move values between positions.

transformers calls one function for the short convolution and one for the recurrence, with queries, keys, values, decay
and strength of whatever projections a family has: what is read there is right for every family at once, as it is at the
attention interface, and for the fused kernels that may stand behind the same names.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from .interception import in_this_thread
from .linear_attention import Linear

CONVOLUTION, STATE_SPACE = "causal_conv1d_fn", "mamba2_chunk_scan"
DELTA_RULES = ("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention")

# By the name of the function, arguments and output (``out``) of each call that a module makes in one forward pass
Calls = dict[str, list[dict[str, Any]]]
_CALLS: ContextVar[Calls | None] = ContextVar("calls", default=None)  # of this thread: others are not listened to
_ONES: ContextVar[bool] = ContextVar("ones", default=False)


@contextmanager
def listening(listeners: dict[nn.Module, Callable[[Calls], None]]) -> Iterator[None]:
    """Tell each module's listener, whenever the module has run, which of the functions above it called.

    Parameters
    ----------
    listeners : dict
        Called only where there were calls.
    """

    def enter(*_) -> None:
        _CALLS.set({})

    def leave(module, *_) -> None:
        calls = _CALLS.get()
        _CALLS.set(None)
        if calls:
            listeners[module](calls)

    with ExitStack() as stack:
        stack.callback(_CALLS.set, None)
        for module in listeners:
            _tap(sys.modules[type(module).__module__])
            stack.callback(module.register_forward_pre_hook(in_this_thread(enter)).remove)
            stack.callback(module.register_forward_hook(in_this_thread(leave)).remove)
        yield


@contextmanager
def answering_ones() -> Iterator[None]:
    """Let the functions above answer with ones: what W_O is then given is the gate behind them, and no more."""
    token = _ONES.set(True)
    try:
        yield
    finally:
        _ONES.reset(token)


def _tap(file: Any) -> None:
    """Let the functions of a modelling file tell of their calls. This stays, and does nothing where nobody listens."""
    alone = not any(hasattr(file, name) for name in (STATE_SPACE, *DELTA_RULES))  # a convolution without recurrence
    for name in (CONVOLUTION, STATE_SPACE, *DELTA_RULES):
        function = getattr(file, name, None)
        if function is not None and not hasattr(function, "tells"):
            setattr(file, name, _telling(function, name, alone))


def _telling(function: Callable, name: str, alone: bool) -> Callable:
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args, **kwargs):
        calls, out = _CALLS.get(), function(*args, **kwargs)
        if _ONES.get() and (name != CONVOLUTION or alone):
            return (torch.ones_like(out[0]), *out[1:]) if isinstance(out, tuple) else torch.ones_like(out)
        if calls is not None:
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            calls.setdefault(name, []).append(arguments | {"out": out[0] if isinstance(out, tuple) else out})
        return out

    call.tells = True
    return call


def read_calls(calls: Calls) -> tuple[Linear, torch.Tensor | None, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """What the calls of one layer compute.

    Returns
    -------
    linear : Linear
    q, k : torch.FloatTensor, shape [H_k, N, d_k], or None
        With norm and scale, in float32 as every kernel has them; None without a recurrence.
    p : torch.Tensor, shape [H, N, c]
        Projected inputs of the values.
    out : torch.Tensor, shape [N, H, c]
        What comes out, before gate, norm and W_O.

    Raises
    ------
    ValueError
        If there is more than one convolution or recurrence: which is the values', and what is behind which?
    """
    recurrences = [name for name in calls if name != CONVOLUTION]
    if max(map(len, calls.values())) > 1 or len(recurrences) > 1:
        raise ValueError(f"unsupported architecture: a layer calls {', '.join(calls)}, and one of them more than once")
    if recurrences:
        (call,) = calls[recurrences[0]]
        linear, q, k, v = (_state_space if STATE_SPACE in calls else _delta_rule)(**call)  # v: [1, N, H, c]
        out = call["out"][0]
        if CONVOLUTION not in calls:
            return linear, q, k, v[0].transpose(0, 1), out
    (call,) = calls[CONVOLUTION]
    inputs, weight = call["hidden_states"][0], call["weight"]  # [C, N], [C, K]
    if recurrences:
        heads, width = v.shape[2:]
    else:
        linear, q, k, heads, width, out = Linear(), None, None, 1, len(inputs), call["out"][0].T[:, None]
    start = len(inputs) - heads * width if linear.corrects else 0  # q, k, v through one convolution; or x, B, C
    values, bias = slice(start, start + heads * width), call.get("bias")
    linear.taps = weight[values].view(heads, width, -1)
    linear.bias = None if bias is None else bias[values].view(heads, width)
    linear.activation = call.get("activation")
    return linear, q, k, inputs[values].view(heads, width, -1).transpose(1, 2), out


def _delta_rule(query, key, value, g, beta, use_qk_l2norm_in_kernel=False, **_):
    """Arguments [1, N, heads, ...] of the gated delta rule; its decay is of a head, or of each channel of a key."""
    q, k = (x[0].transpose(0, 1).float() for x in (query, key))  # [H_k, N, d_k]
    if use_qk_l2norm_in_kernel:
        q, k = (x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    decay = g[0].float() if g.ndim == 4 else g[0, ..., None].float()  # [N, H, 1 or d_k]
    linear = Linear(beta=beta[0].float().T, decay=decay.transpose(0, 1), corrects=True)
    return linear, q * q.shape[-1] ** -0.5, k, value


def _state_space(
    hidden_states, dt, A, B, C, D=None, dt_bias=None, dt_softplus=False, dt_limit=(0.0, float("inf")), **_
):
    """Arguments [1, N, heads or groups, ...] of Mamba-2's scan: C reads what B wrote, with strength Δ."""
    dt = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
    dt = (softplus(dt) if dt_softplus else dt).clamp(*dt_limit)[0].float().T  # [H, N]
    q, k = (x[0].transpose(0, 1).float() for x in (C, B))  # [groups, N, state]
    linear = Linear(beta=dt, decay=(A.float()[:, None] * dt)[..., None], skip=None if D is None else D.float())
    return linear, q, k, hidden_states
