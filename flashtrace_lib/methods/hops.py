"""What is made of scores over the context: shares of sentences, of neighbours and of segments."""

import torch

from ..sample import Sample


def share_by_sentence(scores: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Give every token the mean score of its sentence, shape [N]; mass is unchanged."""
    if not sample.sentences:
        raise ValueError(
            f"sample {sample.id} has no sentences: granularity='sentence' needs Sample.sentences, "
            "token ranges that text.build_sample fills in"
        )
    shared = scores.clone()
    for start, stop in sample.sentences:
        shared[start:stop] = scores[start:stop].mean()
    return shared


def spread_to_neighbours(scores: torch.Tensor, width: int) -> torch.Tensor:
    """Every token shares its score equally among the ``width`` tokens around it, shape [|I|]; mass is unchanged.

    At both ends of I the window is cut, and what would have left I stays with the tokens that remain in it.

    Parameters
    ----------
    scores : torch.FloatTensor, shape [|I|]
    width : int
        Tokens in a window, odd; 1 changes nothing.
    """
    if width == 1:
        return scores
    window, reach = torch.ones(1, 1, width, dtype=scores.dtype), width // 2
    in_window = torch.nn.functional.conv1d(torch.ones_like(scores)[None, None], window, padding=reach)  # [1, 1, |I|]
    return torch.nn.functional.conv1d(scores[None, None] / in_window, window, padding=reach)[0, 0]


def mass_by_segment(scores: torch.Tensor, sample: Sample) -> dict[str, float]:
    """Share of each segment in scores of the context, as it stands in the metadata of an attribution.

    Parameters
    ----------
    scores : torch.Tensor, shape [N]
        Not negative; of any scale.
    sample : Sample

    Returns
    -------
    dict of str to float
        ``prompt``, ``reasoning`` and ``output``, where they are not empty, and ``context``, all other tokens. They
        sum to 1; of scores that are all 0, everything is context.
    """
    scores = scores.double()
    scores = scores / scores.sum().clamp_min(torch.finfo(torch.float64).tiny)  # [N]
    shares = {name: float(scores[slice(*span)].sum()) for name, span in sample.segments.named()}
    return {**shares, "context": max(0.0, 1.0 - sum(shares.values()))}
