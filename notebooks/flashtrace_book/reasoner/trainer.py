"""A training run in memory: the adapter, its optimiser and its log, and one step after the other.

Every step is a pure function of the state before it and the seed: with ``state_dict`` saved and loaded again, a run
ends, on one machine, with the same bits.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F

from flashtrace_lib.files import root
from flashtrace_lib.fingerprints import fingerprint, model_fingerprint
from flashtrace_lib.metrics.arithmetic import without_emulation

from . import adapter
from .batches import Batch, TrainingExample, batches
from .config import TrainingConfig

EAGER_UP_TO = 640  # tokens; on a CPU the plain attention's backward pass is faster up to here, the fused one's beyond
Rows = list[dict[str, Any]]


class Trainer:
    """A model in a fresh adapter, with the optimiser, the learning rate, the log and the number of steps done.

    Parameters
    ----------
    config : TrainingConfig
    model : transformers.PreTrainedModel
        Wrapped in the adapter until `release`.
    tokenizer : transformers.PreTrainedTokenizerBase
    """

    def __init__(self, config: TrainingConfig, model: torch.nn.Module, tokenizer: Any):
        self.config, self.model, self.tokenizer = config, model, tokenizer
        self.attention = model.config._attn_implementation
        # Of the model as it comes: a run continues only under the same settings, on the same weights.
        shaping = {"config": config.shaping(), "model": model_fingerprint(model)}
        self.peft_model = adapter.add_adapter(model, config.rank, config.alpha, config.seed)
        if config.start is not None:
            shaping["start"] = adapter.load_adapter(self.peft_model, root() / config.start)
        self.identity = fingerprint(shaping)
        self.parameters = [p for p in self.peft_model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate)
        self.step = 0
        self.rows: Rows = []

    def release(self) -> None:
        """Take the adapter off the model and leave the model as it came."""
        self.peft_model.unload()
        self.model.set_attn_implementation(self.attention)
        self.model.requires_grad_(True).eval()

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides how the run goes on."""
        return {
            "identity": self.identity,
            "step": self.step,
            "rows": self.rows,
            "adapter": adapter.adapter_state(self.peft_model),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state that `state_dict` has returned."""
        adapter.load_adapter_state(self.peft_model, state["adapter"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        if torch.cuda.is_available() and state["cuda_rng"]:
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        self.step, self.rows = state["step"], state["rows"]

    def take_step(self, examples: list[TrainingExample]) -> tuple[float, float]:
        """Take one optimiser step.

        Returns
        -------
        (float, float)
            Loss, nats per response token, and the share of responses whose every token is the likeliest.

        Raises
        ------
        ValueError
            If the loss or the gradient is not finite.
        """
        start = time.perf_counter()
        self.peft_model.train()
        n_tokens = sum(example.n_response for example in examples)
        results: Rows = []
        for batch in batches(examples, self.tokenizer.eos_token_id, self.config.tokens_per_batch):
            losses, hits = self._forward(batch)  # [M], [M]
            (losses.sum() / n_tokens).backward()  # the mean over the step, whatever its batches
            results += _results_by_example(batch, losses.detach(), hits)
        loss = sum(result["loss"] for result in results) / n_tokens
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip).item()
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise ValueError(f"step {self.step}: loss {loss}, gradient norm {norm}: lower the learning rate")
        rate = self.schedule.get_last_lr()[0]
        self.optimiser.step()
        self.schedule.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1
        seconds = time.perf_counter() - start
        self._log("train", results, learning_rate=rate, grad_norm=norm, seconds=seconds)
        return loss, sum(result["exact"] for result in results) / len(results)

    @torch.no_grad()
    def evaluate(self, examples: list[TrainingExample]) -> None:
        """Log loss and accuracy on held-out examples."""
        self.peft_model.eval()
        start = time.perf_counter()
        results: Rows = []
        for batch in batches(examples, self.tokenizer.eos_token_id, self.config.tokens_per_batch):
            results += _results_by_example(batch, *self._forward(batch))
        self._log("eval", results, seconds=time.perf_counter() - start)

    def _rate(self, step: int) -> float:
        """Learning rate as a share of its peak."""
        if step < self.config.warmup:
            return (step + 1) / (self.config.warmup + 1)
        progress = (step - self.config.warmup) / (self.config.steps - self.config.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def _forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss of each response token, [M], and whether it is the likeliest, [M]."""
        device = self.model.device
        eager = device.type == "cpu" and batch.input_ids.shape[1] <= EAGER_UP_TO
        self.model.set_attn_implementation("eager" if eager else self.attention)
        causal = self.peft_model.get_base_model()
        in_bf16 = self.config.bf16 and without_emulation("bfloat16", self.model) == "bfloat16"
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=in_bf16):
            hidden = causal.model(input_ids=batch.input_ids.to(device), use_cache=False).last_hidden_state  # [B, N, d]
            # Only where a response token is predicted: logits of all positions would take gigabytes.
            logits = causal.lm_head(hidden[batch.predicts.to(device)])  # [M, vocabulary]
        targets = batch.targets.to(device)  # [M]
        return F.cross_entropy(logits.float(), targets, reduction="none"), logits.argmax(-1) == targets

    def _log(self, split: str, results: Rows, **measured: float) -> None:
        """Add a row to the log for each task and mode."""
        groups = pd.DataFrame(results).groupby(["task", "mode"], as_index=False)
        table = groups.agg(
            n=("exact", "size"),
            exact=("exact", "mean"),
            tokens=("tokens", "sum"),
            loss=("loss", "sum"),
            hits=("hits", "sum"),
        )
        table["loss"] /= table["tokens"]
        table["token_accuracy"] = table.pop("hits") / table["tokens"]
        rows = table.assign(**measured).to_dict("records")
        self.rows += [{"step": self.step, "split": split, **row} for row in rows]


def _results_by_example(batch: Batch, losses: torch.Tensor, hits: torch.Tensor) -> Rows:
    """Summed loss, hits and exactness of each example, from the tokens' losses [M] and hits [M]."""
    losses, hits = losses.float().cpu(), hits.cpu()
    results = []
    for row, example in enumerate(batch.examples):
        own = batch.rows == row  # [M]
        results.append(
            {
                "task": example.task,
                "mode": example.mode,
                "loss": losses[own].sum().item(),
                "hits": hits[own].sum().item(),
                "exact": float(hits[own].all().item()),
                "tokens": example.n_response,
            }
        )
    return results
