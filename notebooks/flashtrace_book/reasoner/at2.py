"""Learn how much each attention head counts in AT2: ``python -m flashtrace_book.reasoner.at2 --model embedded``.

Of each training example, the weighted attention to the sentences that an ablation keeps, added up, is to follow the
effect of the ablation: the loss is the negative Pearson correlation over an example's ablations, averaged over the
examples (Cohen-Wang et al. 2025). The weights are learned from all examples; the card also says how well they do on
examples that were held out, each of which a fit to four fifths of the others was judged on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from flashtrace_lib.files import CannotWrite, build_root, in_checkout, write_text
from flashtrace_lib.load import load_model
from flashtrace_lib.methods.at2 import probe, read_weights
from flashtrace_lib.metrics import Scorer
from flashtrace_lib.store import Store

from ..settings import whole_number
from ..statistics import mean_row, rank_correlation
from .at2_features import RESPONSES, measured, training_samples

FOLDS = 5
STEPS, LEARNING_RATE = 300, 0.01
_WHOSE = {"own": "the model's own", "reference": "reference"}
_CARD = """# Weights of attention heads for AT2

One file for each model: how much the attention of each head of each layer says about what removing a sentence does
to the response (`flashtrace_lib/methods/at2.py`). Learned by this book from synthetic problems alone.

Loss: negative Pearson correlation of predicted and measured effects over the ablations of an example, mean over the
examples. LDS: Spearman's correlation in its place, with the 95 % interval of its mean. Uniform: all heads alike.

{models}
"""


def design(records: Iterable[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to what each ablation keeps, and its effect.

    Parameters
    ----------
    records : iterable of dict
        Of `at2_features.measured`, all with the same number of ablations.

    Returns
    -------
    kept : torch.DoubleTensor, shape [E, A, F]
        Of each example and ablation, attention by head summed over the kept sources.
    effects : torch.DoubleTensor, shape [E, A]
    """
    double = torch.float64
    pairs = [
        (
            torch.tensor(r["masks"], dtype=double) @ torch.tensor(r["features"], dtype=double),
            torch.tensor(r["effects"], dtype=double),
        )
        for r in records
    ]
    kept, effects = (torch.stack(part) for part in zip(*pairs, strict=True))
    return kept, effects


def correlations(weights: torch.Tensor, kept: torch.Tensor, effects: torch.Tensor) -> torch.Tensor:
    """Pearson correlation of predicted and measured effects over the ablations of each example, [E]."""
    predicted = kept @ weights  # [E, A]
    predicted = predicted - predicted.mean(-1, keepdim=True)
    effects = effects - effects.mean(-1, keepdim=True)
    scale = predicted.norm(dim=-1) * effects.norm(dim=-1)
    return (predicted * effects).sum(-1) / scale.clamp_min(1e-12)


def fit(
    kept: torch.Tensor, effects: torch.Tensor, steps: int = STEPS, learning_rate: float = LEARNING_RATE
) -> torch.Tensor:
    """Weights [F] that maximise the mean correlation, by full-batch Adam from equal weights; largest of size 1.

    A head's attention is divided by its spread over the ablations first: heads that look elsewhere than at the sources
    would otherwise hardly be learned. Nothing is drawn at random.

    Parameters
    ----------
    kept, effects
        See `design`.
    steps : int
    learning_rate : float
    """
    spread = (kept - kept.mean(1, keepdim=True)).square().mean((0, 1)).sqrt().clamp_min(1e-12)  # [F]
    scaled = kept / spread
    weights = torch.full_like(spread, 1 / len(spread)).requires_grad_()
    optimiser = torch.optim.Adam([weights], learning_rate / len(spread))
    for _ in tqdm(range(steps), desc="weights of heads", leave=False):
        optimiser.zero_grad()
        (-correlations(weights, scaled, effects).mean()).backward()
        optimiser.step()
    learned = weights.detach() / spread
    return learned / learned.abs().max()


def lds(weights: torch.Tensor, kept: torch.Tensor, effects: torch.Tensor) -> list[float]:
    """Linear datamodelling score of each example: Spearman's correlation of predicted and measured effects."""
    return [rank_correlation(p, e) for p, e in zip(kept @ weights, effects, strict=True)]


def learn(
    name: str,
    examples: int = 100,
    masks: int = 32,
    seed: int = 0,
    responses: str = "own",
    folder: Path | None = None,
) -> dict[str, Any]:
    """Measure the training examples of a model, from the store where they are there, and learn its weights.

    Parameters
    ----------
    name : str
        Model, as `load_model` takes it.
    examples, masks : int
        Training examples, and ablations of each.
    seed : int
        Of problems and ablations.
    responses : {"own", "reference"}
        See `at2_features.training_samples`.
    folder : Path, optional
        Where responses and measurements are kept. Default: ``build/at2/<model>``.

    Returns
    -------
    dict
        What the file of weights holds: ``model``, ``weights`` [L][H], ``probe`` (`methods.at2.probe`) and ``card``, the
        numbers of the run.

    Raises
    ------
    ValueError
        If a count is not positive, fewer than ten examples are left, or the model cannot be loaded.
    """
    whole_number(examples, "examples")
    whole_number(masks, "masks")
    folder = folder or build_root() / "at2" / Path(name).name
    model, tokenizer = load_model(name)
    samples = training_samples(model, tokenizer, examples, seed, responses, Store(folder / "responses"))
    if len(samples) < 2 * FOLDS:
        raise ValueError(f"{len(samples)} of {examples} examples are left, too few to hold some out: ask for more")
    # Where deletion curves may be in bfloat16, the ablations are.
    ablated = load_model(name, dtype="bfloat16")[0] if Scorer(model, precision="auto").is_open else model
    records = list(measured(model, ablated, samples, masks, seed, Store(folder / "examples")))
    kept, effects = design(records)
    weights = fit(kept, effects)
    by_layer = weights.view(len(probe(model)), -1)  # [L, H]
    card = {
        "tasks": sorted({record["cell"] for record in records}),
        "tokens": [min(map(len, samples)), max(map(len, samples))],
        "masks": masks,
        "responses": responses,
        "dtype": str(next(ablated.parameters()).dtype).removeprefix("torch."),
        "minutes": round(sum(record["seconds"] for record in records) / 60, 1),
        "learned, on its own examples": judged([(weights, kept, effects)]),
        "learned, on held-out examples": judged(folds(kept, effects)),
        "uniform": judged([(torch.ones_like(weights), kept, effects)]),
        "command": f"--model {name} --examples {examples} --masks {masks} --seed {seed} --responses {responses}",
    }
    rounded = [[round(x, 6) for x in row] for row in by_layer.tolist()]
    return {"model": name, "weights": rounded, "probe": probe(model), "card": card}


def folds(kept: torch.Tensor, effects: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield weights, and the part of `design` that they were not learned from; every example is in one part."""
    fold = torch.arange(len(kept)) % FOLDS
    for held_out in (fold == i for i in range(FOLDS)):
        yield fit(kept[~held_out], effects[~held_out]), kept[held_out], effects[held_out]


def judged(parts: Iterable[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """Loss and LDS with its interval over all examples of (weights, kept, effects): ``loss, lds, low, high, n``."""
    losses, scores = [], []
    for weights, kept, effects in parts:
        losses += (-correlations(weights, kept, effects)).tolist()
        scores += lds(weights, kept, effects)
    row = {"loss": sum(losses) / len(losses), **mean_row(scores, "lds")}
    return {name: round(value, 3) for name, value in row.items()}


def card(weights: Iterable[dict[str, Any]]) -> str:
    """Markdown card of the files of weights, given what each holds."""
    return _CARD.format(models="\n\n".join(_section(one["model"], one["weights"], one["card"]) for one in weights))


def _section(model: str, weights: list[list[float]], facts: dict[str, Any]) -> str:
    """What the card says of one file."""
    shortest, longest = facts["tokens"]
    file = f"data/at2/{Path(model).name}.json"
    rows = [
        f"| {name} | {row['n']} | {row['loss']:.3f} | {row['lds']:.3f} [{row['low']:.3f}, {row['high']:.3f}] |"
        for name, row in facts.items()
        if isinstance(row, dict)
    ]
    return "\n".join(
        [
            f"## `{file}`",
            "",
            f"{len(weights)} layers of {len(weights[0])} heads. Training problems ({', '.join(facts['tasks'])}) with",
            f"{_WHOSE[facts['responses']]} responses, {shortest} to {longest} tokens; {facts['masks']} ablations "
            f"of each in {facts['dtype']},",
            f"measured in {facts['minutes']:g} minutes, added up over the examples.",
            f"`python -m flashtrace_book.reasoner.at2 {facts['command']} --out {file}` learns it again.",
            "",
            "| weights | examples | loss | LDS |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Learn from the command line; exit code 2 for bad input or a full disk."""
    program = "python -m flashtrace_book.reasoner.at2"
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded", help="a name, a hub id or a folder (default: embedded)")
    parser.add_argument("--examples", type=int, default=100, help="training problems (default: 100)")
    parser.add_argument("--masks", type=int, default=32, help="ablations of each example (default: 32)")
    parser.add_argument("--seed", type=int, default=0, help="of problems and ablations (default: 0)")
    parser.add_argument("--responses", choices=RESPONSES, default="own", help="whose responses (default: own)")
    parser.add_argument("--out", help="file of the weights (default: data/at2/<model>.json)")
    arguments = parser.parse_args(argv)
    try:
        out = in_checkout(arguments.out or f"data/at2/{Path(arguments.model).name}.json")
        found = learn(arguments.model, arguments.examples, arguments.masks, arguments.seed, arguments.responses)
        write_text(out, json.dumps(found, indent=1) + "\n")
        write_text(out.with_name("README.md"), card(read_weights(path) for path in sorted(out.parent.glob("*.json"))))
    except (ValueError, CannotWrite) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    print(f"{out}: {found['card']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
