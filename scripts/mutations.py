"""Whether the tests notice wrong code: ``python -m scripts.mutations [--only NAME] [--list]``.

Twenty small mistakes, of the kind that gives plausible numbers: a sign, a head, a position, a normalisation. Each is
made in a copy of the library in a temporary folder, and the tests that should notice it run against that copy, one
process at a time. Exit status 1 where a mistake survived, 2 where nothing can be said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "flashtrace_lib"
COPIED, LINKED = (PACKAGE, "tests"), ("data", "figures", "notebooks")  # tests find their root by their own place


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Parameters
    ----------
    name : str
    file : str
        In the package.
    tests : str
        File under ``tests`` that should notice.
    old, new : str
        The text, which stands exactly once in the file, and what takes its place.
    """

    name: str
    file: str
    tests: str
    old: str
    new: str


# fmt: off
MUTATIONS = [
    Mutation("residual-left-out-of-the-denominator", "kernel/proximity.py", "methods/test_ifr.py",
             "(e.sum(-1) + e_res)", "e.sum(-1)"),
    Mutation("first-head-dropped", "kernel/proximity.py", "methods/test_ifr.py",
             "head_proximity(one, sums, y).sum(1)", "head_proximity(one, sums, y)[:, 1:].sum(1)"),
    Mutation("values-of-another-group-of-heads", "kernel/proximity.py", "methods/test_ifr.py",
             "aggregated.view(b, len(v), -1, n).transpose(0, 1)",
             "aggregated.view(b, -1, len(v), n).permute(2, 0, 1, 3)"),
    Mutation("bias-forgotten", "kernel/proximity.py", "methods/test_ifr.py",
             "y = y + w.sum(-1, keepdim=True) * bias", "pass"),
    Mutation("bias-counted-once-for-a-whole-span", "kernel/proximity.py", "methods/test_backward_graph.py",
             "w.sum(-1, keepdim=True) * bias", "bias"),
    Mutation("queries-from-the-first-captured-row", "kernel/proximity.py", "kernel/test_fused_attention.py",
             "offset, blocks = target[0] - first_row, list", "offset, blocks = 0, list"),
    Mutation("cached-attention-transposed", "kernel/proximity.py", "methods/test_flashtrace.py",
             "layer.maps[:, slice(*target)]", "layer.maps.transpose(1, 2)[:, slice(*target)]"),
    Mutation("residual-goes-up-the-layers", "kernel/proximity.py", "methods/test_propagated.py",
             "in reversed(activations.layers)", "in activations.layers"),
    Mutation("sliding-window-ignored-by-the-fused-kernel", "kernel/fused_attention.py",
             "kernel/test_fused_attention.py",
             "mask = None if layer.mask is None else layer.mask[:, rows]", "mask = None"),
    Mutation("sign-of-a-zero-target", "kernel/l1_proximity.py", "kernel/test_l1_proximity.py",
             "torch.where(y < 0, -1.0, 1.0)", "y.sign()"),
    Mutation("hop-weight-of-the-last-hop-alone", "methods/flashtrace.py", "methods/test_flashtrace.py",
             "carried *= flow[-1]", "carried = flow[-1]"),
    Mutation("hop-not-normalised", "methods/flashtrace.py", "methods/test_flashtrace.py",
             "Hop(scores / total, target", "Hop(scores, target"),
    Mutation("first-token-of-a-unit-explains-itself", "methods/backward_graph.py", "methods/test_backward_graph.py",
             "row[start:] = 0", "row[start + 1 :] = 0"),
    Mutation("sign-of-the-loss", "methods/perturbation.py", "methods/test_perturbation.py",
             "losses[1:] - losses[0]", "losses[0] - losses[1:]"),
    Mutation("one-token-too-many-masked", "methods/perturbation_base.py", "methods/test_perturbation.py",
             "row[start:stop] = mask", "row[start : stop + 1] = mask"),
    Mutation("attention-of-the-target-itself", "methods/at2.py", "methods/test_at2.py",
             "rows = (start - 1, stop - 1)", "rows = (start, stop)"),
    Mutation("ends-of-the-path-at-full-weight", "methods/ig_attn.py", "methods/test_gradients.py",
             "weights[[0, -1]] /= 2", "pass"),
    Mutation("penalty-of-a-sum-not-of-a-mean", "methods/contextcite.py", "methods/test_contextcite.py",
             "n_target * lasso(masks, values / n_target, self.alpha)", "lasso(masks, values, self.alpha)"),
    Mutation("all-tied-tokens-found", "metrics/recovery.py", "metrics/test_recovery.py",
             "places = (count - int(above.sum())) / int(tied.sum())", "places = 1"),
    Mutation("running-minimum-left-out", "metrics/curve.py", "metrics/test_metrics.py",
             "((curve.cummin(0).values - curve[-1])", "((curve - curve[-1])"),
]
# fmt: on


def mutated(mutation: Mutation) -> str:
    """The file's text with the mistake; ValueError unless the old text stands in it exactly once."""
    text = (ROOT / PACKAGE / mutation.file).read_text(encoding="utf-8")
    if (found := text.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.name}: {mutation.old!r} stands {found} times in {mutation.file}, not once")
    return text.replace(mutation.old, mutation.new)


def run_tests(tests: Iterable[str], mutation: Mutation | None = None) -> tuple[int, str]:
    """Exit status of pytest and what it printed, against a copy of the library: the rest of the checkout beside it.

    Parameters
    ----------
    tests : iterable of str
        Files under ``tests``.
    mutation : Mutation, optional
        Made in the copy.
    """
    with TemporaryDirectory(prefix="mutation-") as made:
        folder = Path(made).resolve()
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        shutil.copy(ROOT / "pyproject.toml", folder)  # makes the folder pytest's root, and so the first to import from
        if mutation is not None:
            (folder / PACKAGE / mutation.file).write_text(mutated(mutation), encoding="utf-8")
        paths = os.pathsep.join([str(folder), str(folder / "notebooks")])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *(f"tests/{t}" for t in tests)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Make the mistakes one after the other; 0 where all were noticed."""
    parser = argparse.ArgumentParser(description="Whether the tests notice wrong code.")
    parser.add_argument("--only", metavar="NAME", choices=[m.name for m in MUTATIONS], help="one mistake")
    parser.add_argument("--list", action="store_true", help="print the mistakes and the tests that should notice them")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only in (None, m.name)]
    for mutation in chosen:
        mutated(mutation)  # before anything runs
        if options.list:
            print(f"{mutation.name}: {mutation.file}, tests/{mutation.tests}")
    if options.list:
        return 0
    begin, survived = time.perf_counter(), []
    status, output = run_tests(sorted({m.tests for m in chosen}))
    if status:  # what fails as it is says nothing about a mistake
        print(f"{output}\nthe tests fail without any mistake", file=sys.stderr)
        return 2
    for mutation in chosen:
        start = time.perf_counter()
        status, output = run_tests([mutation.tests], mutation)
        if status not in (0, 1):  # 1: a test failed; others: none could run
            print(f"{output}\n{mutation.name}: pytest ended with {status}", file=sys.stderr)
            return 2
        survived += [] if status else [mutation.name]
        by = next((line.split(" - ")[0] for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        word = "killed  " if status else "SURVIVED"
        print(f"{word} {time.perf_counter() - start:4.0f} s  {mutation.name}  {by}", flush=True)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} killed in {time.perf_counter() - begin:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
