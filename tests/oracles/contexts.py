"""A sample long enough for batches and sentences, and what a model predicts in one plain forward pass."""

import torch

from tests.oracles.tiny import tiny_sample

LONG = dict(n=90, prompt=(3, 57), reasoning=(60, 75), output=(77, 88))
SENTENCES = [(3, 10), (10, 31), (31, 33), (33, 57), (60, 75), (77, 88)]


def long_sample():
    sample = tiny_sample(**LONG)
    sample.sentences = list(SENTENCES)
    return sample


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(torch.as_tensor(a).double(), torch.as_tensor(b).double(), atol=tolerance, rtol=0)


def predictions(model, ids, n_targets):
    """Log-probabilities [R, V] of the last targets of a whole context, one forward, all logits."""
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].double().log_softmax(-1)[-n_targets - 1 : -1]


def watched(model, monkeypatch, note):
    """Lists ``note(input_ids)`` of each forward pass from now on."""
    noted, forward = [], type(model).forward

    def noting(self, input_ids, **kw):
        noted.append(note(input_ids))
        return forward(self, input_ids, **kw)

    monkeypatch.setattr(type(model), "forward", noting)
    return noted
