"""The gradient methods spelled out in float64 with a forward pass of its own: no hooks, no attention interface.

One function runs every tiny family layer by layer from its weights; `hold` marks where AttnLRP changes a gradient.
"""

import copy

import torch


def _plain(x, factor):
    return x


def _scaled(x, factor):
    """x with ``factor`` of its gradient, by splitting it into a live and a dead part."""
    return factor * x + (1 - factor) * x.detach()


class _FlatSoftmax(torch.autograd.Function):
    """Softmax forward; backward the gradient written out at temperature τ, without a factor 1/τ (GIM)."""

    @staticmethod
    def forward(ctx, z, temperature):
        ctx.z, ctx.temperature = z, temperature
        e = torch.exp(z - z.max(-1, keepdim=True).values)
        return e / e.sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx, g):
        out = torch.zeros_like(g)
        for i, (z, row) in enumerate(zip(ctx.z, g, strict=True)):
            seen = torch.isfinite(z)
            p = torch.exp(z[seen] / ctx.temperature)
            p = p / p.sum()
            jacobian = torch.diag(p) - torch.outer(p, p)  # ∂p / ∂(z / τ)
            out[i, seen] = jacobian @ row[seen]
        return out, None


class Naive:
    """A float64 copy of a tiny model; ``rule`` None leaves the gradients alone."""

    def __init__(self, model, rule=None, temperature=2.0):
        self.model = copy.deepcopy(model).double().requires_grad_(False)
        self.config = self.model.config
        self.rule, self.temperature = rule, temperature
        self.scaled = _plain if rule is None else _scaled

    def norm(self, module, x):
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        rms = torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
        weight = 1 + module.weight if "Gemma" in type(module).__name__ else module.weight
        return x / (rms if self.rule is None else rms.detach()) * weight

    def curve(self, f, x):
        """Element-wise non-linearity; under the rules of AttnLRP, x times the constant f(x) / x."""
        slope = (f(x) / x).detach().nan_to_num(1.0)  # 0 / 0: the logit of a padding embedding, which nothing explains
        return f(x) if self.rule in (None, "gim") else x * slope

    def softmax(self, z):
        """Softmax of scores [n, n]."""
        return _FlatSoftmax.apply(z, self.temperature) if self.rule == "gim" else torch.softmax(z, -1)

    def attention(self, layer, index, x, scale_last_maps):
        """Attention output before the residual, [n, d]; the maps of the last layer are ``self.maps``."""
        a, n, dim = layer.self_attn, len(x), layer.self_attn.head_dim
        q, k, v = a.q_proj(x), a.k_proj(x), a.v_proj(x)
        flat = hasattr(layer, "post_feedforward_layernorm") and not hasattr(layer, "input_layernorm")  # OLMo-2
        if flat:
            q, k = self.norm(a.q_norm, q), self.norm(a.k_norm, k)
        q, k, v = (t.view(n, -1, dim) for t in (q, k, v))
        if not flat and hasattr(a, "q_norm"):
            q, k = self.norm(a.q_norm, q), self.norm(a.k_norm, k)
        cos, sin = self.rotary(layer, index, n)
        q, k = q * cos + _turn(q) * sin, k * cos + _turn(k) * sin
        on_qk, on_v = {None: (1, 1), "attnlrp": (0.25, 0.5), "cp_lrp": (0, 1), "gim": (0.25, 0.5)}[self.rule]
        q, k, v = self.scaled(q, on_qk), self.scaled(k, on_qk), self.scaled(v, on_v)
        window = self.window(a)
        heads, maps = [], []
        for h in range(q.shape[1]):
            kv = h // (q.shape[1] // k.shape[1])
            scores, cap = q[:, h] @ k[:, kv].T * a.scaling, getattr(self.config, "attn_logit_softcapping", None)
            if cap:
                scores = self.curve(lambda s, cap=cap: cap * torch.tanh(s / cap), scores)
            i, j = torch.arange(n)[:, None], torch.arange(n)[None]
            maps.append(self.softmax(scores.masked_fill(~((j <= i) & (i - j < (window or n + 1))), float("-inf"))))
        maps = torch.stack(maps)  # [H, n, n]
        if index == len(self.model.model.layers) - 1:
            maps = self.maps = (
                (maps.detach() * scale_last_maps).requires_grad_() if scale_last_maps is not None else maps
            )
        for h in range(q.shape[1]):
            heads.append(maps[h] @ v[:, h // (q.shape[1] // k.shape[1])])
        self.layers.append({"maps": maps, "v": v, "x": None, "o": a.o_proj.weight})
        return a.o_proj(torch.cat(heads, -1))

    def rotary(self, layer, index, n):
        kind = (self.config.layer_types[index],) if "gemma3" in self.config.model_type else ()
        x = torch.zeros(1, n, self.config.hidden_size, dtype=torch.float64)
        cos, sin = self.model.model.rotary_emb(x, torch.arange(n)[None], *kind)
        return cos[0][:, None].double(), sin[0][:, None].double()

    def window(self, attention):
        if self.config.model_type == "mistral":
            return self.config.sliding_window
        return getattr(attention, "sliding_window", None)

    def mlp(self, mlp, x):
        return mlp.down_proj(self.scaled(self.curve(mlp.act_fn, mlp.gate_proj(x)) * mlp.up_proj(x), 0.5))

    def hidden(self, x, scale_last_maps=None):
        """Embeddings [n, d] to final normed states [n, d]."""
        self.layers = []
        m = getattr(self.config, "residual_multiplier", 1.0)  # Granite
        for index, layer in enumerate(self.model.model.layers):
            before_only = not hasattr(layer, "post_feedforward_layernorm")
            pre = hasattr(layer, "input_layernorm")
            out = self.attention(layer, index, self.norm(layer.input_layernorm, x) if pre else x, scale_last_maps)
            self.layers[-1]["x"] = x
            mid = x + m * (out if before_only else self.norm(layer.post_attention_layernorm, out))
            if before_only:  # Llama, Qwen, Mistral
                x = mid + m * self.mlp(layer.mlp, self.norm(layer.post_attention_layernorm, mid))
            else:  # Gemma; OLMo-2 without the norm in front
                inner = self.norm(layer.pre_feedforward_layernorm, mid) if pre else mid
                x = mid + self.norm(layer.post_feedforward_layernorm, self.mlp(layer.mlp, inner))
        return self.norm(self.model.model.norm, x)

    def logits(self, x, scale_last_maps=None):
        """Embeddings [n, d] to logits [n, V]."""
        z = self.model.lm_head(self.hidden(x, scale_last_maps)) / getattr(self.config, "logits_scaling", 1.0)
        cap = getattr(self.config, "final_logit_softcapping", None)
        return self.curve(lambda s: cap * torch.tanh(s / cap), z) if cap else z

    def embed(self, ids):
        return self.model.get_input_embeddings()(ids).detach()


def _turn(x):
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


def naive_lrp(model, sample, rule="attnlrp", temperature=2.0):
    """Relevance of every token for the logit of each token of O, [M, N] float64, and the logits."""
    naive = Naive(model, rule, temperature)
    rows, logits = [], []
    for t in range(*sample.segments.output):
        x = naive.embed(sample.input_ids).requires_grad_()
        logit = naive.logits(x)[t - 1, sample.input_ids[t]]
        (gradient,) = torch.autograd.grad(logit, x)
        rows.append((x * gradient).sum(-1).detach())
        logits.append(logit.detach())
    return torch.stack(rows), torch.stack(logits)


def naive_ig(model, sample, steps, start):
    """Trapezoid sum of the summed log-probability of O from start·x to x, [N] float64."""
    naive = Naive(model)
    x, points = naive.embed(sample.input_ids), [start + (1 - start) * k / (steps - 1) for k in range(steps)]
    total, values = torch.zeros_like(x), []
    for k, alpha in enumerate(points):
        at = (alpha * x).requires_grad_()
        log_p = naive.logits(at).log_softmax(-1)
        value = sum(log_p[t - 1, sample.input_ids[t]] for t in range(*sample.segments.output))
        (gradient,) = torch.autograd.grad(value, at)
        total += gradient * (points[1] - points[0]) * (0.5 if k in (0, steps - 1) else 1)  # widths sum to 1 - start
        values.append(float(value.detach()))
    return (total * x).sum(-1), values


def naive_ig_attn(model, sample, steps, path, perception, start_layer=0):
    """Feedback times perception, mean over the tokens of O, [N] float64."""
    naive, ids = Naive(model), sample.input_ids
    x, rows = naive.embed(ids), [t - 1 for t in range(*sample.segments.output)]
    feedback = torch.zeros(len(rows), model.config.num_attention_heads, len(ids), dtype=torch.float64)
    for k in range(steps):
        alpha = k / (steps - 1)
        scale, at = (alpha, x) if path == "maps" else (1.0, alpha * x)
        log_p = naive.logits(at, torch.tensor(scale, dtype=torch.float64)).log_softmax(-1)
        for i, r in enumerate(rows):
            (gradient,) = torch.autograd.grad(log_p[r, ids[r + 1]], naive.maps, retain_graph=True)
            feedback[i] += gradient[:, r] / (steps - 1) * (0.5 if k in (0, steps - 1) else 1)
    feedback = feedback.clamp_min(0).mean(1)  # [M, N]
    naive.hidden(x)
    perceived = torch.eye(len(ids), dtype=torch.float64)
    for state in naive.layers[start_layer:]:
        maps, passed = state["maps"].mean(0), torch.ones(len(ids), dtype=torch.float64)
        if perception == "token":
            for j in range(len(ids)):
                v = state["v"][j].repeat_interleave(len(state["maps"]) // state["v"].shape[1], 0)  # [H, head_dim]
                passed[j] = (state["o"] @ v.flatten()).norm() / state["x"][j].norm()
        perceived = perceived + maps @ torch.diag(passed) @ perceived
    return (feedback * perceived[rows]).mean(0)
