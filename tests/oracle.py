"""A second implementation of the noisy RNNs, written to be obviously right and nothing else.

Each sequence runs alone, step by step, through torch's own cell functions: no batches, no padding,
no kernels. Noise is looked up by layer, absolute time and sequence, as the interface defines it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noisin.recurrent.stack import NoisyStack


def gru_cell(x: Tensor, z: Tensor, carry: Tensor, w: list[Tensor]) -> Tensor:
    """The GRU with gates that read z and a carry of its own."""
    gates_x, gates_h = x @ w[0].T, z @ w[1].T
    if len(w) > 2:
        gates_x, gates_h = gates_x + w[2], gates_h + w[3]
    H = carry.shape[-1]
    r = torch.sigmoid(gates_x[:H] + gates_h[:H])
    u = torch.sigmoid(gates_x[H : 2 * H] + gates_h[H : 2 * H])
    n = torch.tanh(gates_x[2 * H :] + r * gates_h[2 * H :])
    return (1 - u) * n + u * carry


def lstm_cell(
    x: Tensor, h: Tensor, c: Tensor, w: list[Tensor], proj: bool
) -> tuple[Tensor, Tensor]:
    projection = w[-1] if proj else None
    w = w[:-1] if proj else w
    gates = x @ w[0].T + h @ w[1].T
    if len(w) > 2:
        gates = gates + w[2] + w[3]
    i, f, g, o = gates.view(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if projection is None else projection @ h), c


def run(
    rnn: NoisyStack,
    sequences: list[Tensor],
    hx: object,
    eps: Tensor,
    mask: Tensor | None = None,
    weights: dict[str, Tensor] | None = None,
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Outputs of each sequence, and the final state (layers, N, ·) as a tuple.

    ``hx`` is a tuple of states or None, ``eps`` and the mask on what the recurrence reads are
    (layers · directions, T, N, H_out); ``weights`` replace parameters of their names.
    """
    named = dict(rnn.named_parameters()) | (weights or {})
    mask = torch.ones_like(eps) if mask is None else mask
    D = 2 if rnn.bidirectional else 1
    is_lstm = rnn.mode == "LSTM"
    outputs, finals = [], []
    for n, x in enumerate(sequences):
        final = []
        for layer in range(rnn.num_layers):
            noisy = layer in rnn.injection.places(rnn.num_layers, given=True)
            emitted = []
            for d in range(D):
                k = layer * D + d
                w = [named[name] for name in rnn._all_weights[k]]
                h = x.new_zeros(eps.shape[-1]) if hx is None else hx[0][k, n]
                c = x.new_zeros(rnn.hidden_size)
                if is_lstm and hx is not None:
                    c = hx[1][k, n]
                read = carry = h
                zs: list[Tensor] = [h] * len(x)
                steps = range(len(x))
                for t in reversed(steps) if d else steps:
                    read = read * mask[k, t, n]
                    if is_lstm:
                        h, c = lstm_cell(x[t], read, c, w, rnn.proj_size > 0)
                    elif rnn.mode == "GRU":
                        h = gru_cell(x[t], read, carry, w)
                    else:
                        a = x[t] @ w[0].T + read @ w[1].T
                        a = a + w[2] + w[3] if len(w) > 2 else a
                        h = getattr(torch, rnn.nonlinearity)(a)
                    z = h
                    if noisy:
                        e = eps[k, t, n]
                        z = h + e if rnn.noise_mode == "additive" else h * (1 + e)
                    zs[t] = z
                    read = z if rnn.feedback else h
                    carry = h if getattr(rnn, "site", "state") == "read" else read
                emitted.append(torch.stack(zs))
                final.append((carry, c) if is_lstm else (carry,))
            x = torch.cat(emitted, dim=-1)
        outputs.append(x)
        finals.append([torch.stack(part) for part in zip(*final, strict=True)])
    return outputs, tuple(torch.stack(part, dim=1) for part in zip(*finals, strict=True))
