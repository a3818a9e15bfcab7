r"""What one step does between its matrix products, as Triton kernels for all cells.

``forward`` turns the gates of a step into activations, the carry into the next one, and emits z;
``backward`` turns what flows back into the gradients of the gates. Each is one launch per step.
With a projection a product lies between the cell and its noise: then these two leave the noise to
``inject`` and ``receive``.

Rows ``(S, ...)`` are those of :class:`~noisin.recurrent.kernels.plan.Plan`, those of the step begin
at ``start``. States ``(N, ...)`` change in place from step to step, so that rows that begin or end
in mid-course need no copies: such a row keeps its initial or final state.

The arithmetic is in float32, or in float64 for tensors of float64. Importing this module needs
triton and compiles nothing: a kernel is compiled at its first launch.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Numbers that differ from step to step: a kernel is not compiled again for each of them.
_FORWARD = ["start", "rows", "next_start", "next_rows"]
_BACKWARD = ["start", "rows", "before_start", "before_rows", "after_start", "after_rows"]


@triton.jit
def _sigmoid(x):
    e = tl.exp(-tl.abs(x))  # never overflows
    return tl.where(x < 0, e, 1) / (1 + e)


@triton.jit
def _tanh(x):
    """``(1 - e)/(1 + e)``; near 0, where that loses digits, ``x/(1 + x²/(3 + x²/(5 + ...)))``."""
    near = tl.abs(x) < 0.6
    small = tl.where(near, x, 0)
    s = small * small
    up = small * (34459425 + s * (4729725 + s * (135135 + s * (990 + s))))
    down = 34459425 + s * (16216200 + s * (945945 + s * (13860 + s * 45)))
    e = tl.exp(-2 * tl.abs(x))
    return tl.where(near, up, tl.where(x < 0, e - 1, 1 - e)) / tl.where(near, down, 1 + e)


@triton.jit
def _tile(rows, H, ROWS: tl.constexpr, UNITS: tl.constexpr):
    """The rows and units of this program, and which of them exist."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    return row, unit, (row < rows) & (unit < H)


@triton.jit
def _emit(
    h, eps, mask, z, read, row, unit, inside, start, next_start, next_rows, H,
    ADDITIVE: tl.constexpr,
):  # fmt: skip
    """Noise on h: z, and what the next step reads of it."""
    noise = tl.load(eps + (start + row) * H + unit, inside, other=0).to(h.dtype)
    value = h + noise if ADDITIVE else h * (1 + noise)
    tl.store(z + (start + row) * H + unit, value, inside)
    if mask is not None:
        follows = inside & (row < next_rows)
        value *= tl.load(mask + (next_start + row) * H + unit, follows, other=0).to(h.dtype)
    tl.store(read + row * H + unit, value, inside)


@triton.jit
def _flow_back(
    eps, mask, d_z, d_before, row, unit, inside, start, after_start, after_rows, H,
    ADDITIVE: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    """The gradient of h: from z, which is emitted and which the step after this one reads."""
    d_h = tl.load(d_before + row * H + unit, inside, other=0).to(REAL)
    if mask is not None:
        reads = inside & (row < after_rows)
        d_h *= tl.load(mask + (after_start + row) * H + unit, reads, other=1).to(REAL)
    d_h += tl.load(d_z + (start + row) * H + unit, inside, other=0).to(REAL)
    if not ADDITIVE:
        d_h *= 1 + tl.load(eps + (start + row) * H + unit, inside, other=0).to(REAL)
    return d_h


@triton.jit
def _gate(gates, bias, at, unit, inside, H, SLOT: tl.constexpr, REAL: tl.constexpr):
    value = tl.load(gates + at + SLOT * H, inside, other=0).to(REAL)
    if bias is not None:
        value += tl.load(bias + SLOT * H + unit, unit < H, other=0).to(REAL)
    return value


@triton.jit
def _elman(gates, bias, at, unit, inside, H, CELL: tl.constexpr, REAL: tl.constexpr):
    h = _gate(gates, bias, at, unit, inside, H, 0, REAL)
    if CELL == "elman-tanh":
        h = _tanh(h)
    elif CELL == "elman-sigmoid":
        h = _sigmoid(h)
    else:
        h = tl.where(h < 0, 0, h)  # not maximum, which may lose a NaN
    tl.store(gates + at, h, inside)
    return h


@triton.jit
def _lstm(gates, bias, carry, carries, at, here, there, unit, inside, H, REAL: tl.constexpr):
    i = _sigmoid(_gate(gates, bias, at, unit, inside, H, 0, REAL))
    f = _sigmoid(_gate(gates, bias, at, unit, inside, H, 1, REAL))
    g = _tanh(_gate(gates, bias, at, unit, inside, H, 2, REAL))
    o = _sigmoid(_gate(gates, bias, at, unit, inside, H, 3, REAL))
    c = f * tl.load(carry + here, inside, other=0).to(REAL) + i * g
    tl.store(gates + at, i, inside)
    tl.store(gates + at + H, f, inside)
    tl.store(gates + at + 2 * H, g, inside)
    tl.store(gates + at + 3 * H, o, inside)
    tl.store(carry + here, c, inside)
    if carries is not None:
        tl.store(carries + there, c, inside)
    return o * _tanh(c)


@triton.jit
def _gru(gates, bias, read, carry, carries, at, here, there, unit, inside, H, REAL: tl.constexpr):
    r = _sigmoid(_gate(gates, bias, at, unit, inside, H, 1, REAL))
    u = _sigmoid(_gate(gates, bias, at, unit, inside, H, 2, REAL))
    m = _gate(gates, bias, at, unit, inside, H, 3, REAL)
    n = _tanh(_gate(gates, bias, at, unit, inside, H, 0, REAL) + r * m)
    carried = read if carry is None else carry
    h = n + u * (tl.load(carried + here, inside, other=0).to(REAL) - n)
    tl.store(gates + at, n, inside)
    tl.store(gates + at + H, r, inside)
    tl.store(gates + at + 2 * H, u, inside)
    tl.store(gates + at + 3 * H, m, inside)
    if carry is not None:
        tl.store(carry + here, h, inside)
    if carries is not None:
        tl.store(carries + there, h, inside)
    return h


@triton.jit(do_not_specialize=_FORWARD)
def forward(
    gates, bias, eps, mask, carry, carries, z, read, start, rows, next_start, next_rows, H,
    CELL: tl.constexpr, ADDITIVE: tl.constexpr, PROJECTED: tl.constexpr, REAL: tl.constexpr,
    ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """One step of a cell: gates to activations, the carry to the next one, and z or h.

    ``read`` is what the step has read, and afterwards what the next one reads. A GRU without a
    carry of its own carries that. Where h is to be projected, ``z`` is ``(N, H)`` and receives h.
    """
    row, unit, inside = _tile(rows, H, ROWS, UNITS)
    here, there = row * H + unit, (start + row) * H + unit
    at = (start + row) * H * 4 + unit
    if CELL == "lstm":
        h = _lstm(gates, bias, carry, carries, at, here, there, unit, inside, H, REAL)
    elif CELL == "gru":
        h = _gru(gates, bias, read, carry, carries, at, here, there, unit, inside, H, REAL)
    else:
        h = _elman(gates, bias, there, unit, inside, H, CELL, REAL)
    if PROJECTED:
        tl.store(z + here, h, inside)
    else:
        _emit(h, eps, mask, z, read, row, unit, inside, start, next_start, next_rows, H, ADDITIVE)


@triton.jit(do_not_specialize=_FORWARD)
def inject(
    eps, mask, z, read, start, rows, next_start, next_rows, H, ADDITIVE: tl.constexpr,
    REAL: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Noise on what was projected, which is in ``z``."""
    row, unit, inside = _tile(rows, H, ROWS, UNITS)
    h = tl.load(z + (start + row) * H + unit, inside, other=0).to(REAL)
    _emit(h, eps, mask, z, read, row, unit, inside, start, next_start, next_rows, H, ADDITIVE)


@triton.jit
def _elman_backward(gates, d_gates, d_h, at, inside, CELL: tl.constexpr, REAL: tl.constexpr):
    h = tl.load(gates + at, inside, other=0).to(REAL)
    if CELL == "elman-tanh":
        d_h *= 1 - h * h
    elif CELL == "elman-sigmoid":
        d_h *= h * (1 - h)
    else:
        d_h = tl.where(h > 0, d_h, 0)
    tl.store(d_gates + at, d_h, inside)


@triton.jit
def _lstm_backward(
    gates, carries, before, d_carry, d_gates, d_h, at, here, there, inside, H, REAL: tl.constexpr,
):  # fmt: skip
    i = tl.load(gates + at, inside, other=0).to(REAL)
    f = tl.load(gates + at + H, inside, other=0).to(REAL)
    g = tl.load(gates + at + 2 * H, inside, other=0).to(REAL)
    o = tl.load(gates + at + 3 * H, inside, other=0).to(REAL)
    squashed = _tanh(tl.load(carries + there, inside, other=0).to(REAL))
    d_c = tl.load(d_carry + here, inside, other=0).to(REAL)
    d_c += d_h * o * (1 - squashed * squashed)
    tl.store(d_gates + at, d_c * g * i * (1 - i), inside)
    tl.store(d_gates + at + H, d_c * before * f * (1 - f), inside)
    tl.store(d_gates + at + 2 * H, d_c * i * (1 - g * g), inside)
    tl.store(d_gates + at + 3 * H, d_h * squashed * o * (1 - o), inside)
    tl.store(d_carry + here, d_c * f, inside)


@triton.jit
def _gru_backward(
    gates, before, d_before, d_carry, d_gates, d_h, at, here, inside, H, REAL: tl.constexpr,
):  # fmt: skip
    n = tl.load(gates + at, inside, other=0).to(REAL)
    r = tl.load(gates + at + H, inside, other=0).to(REAL)
    u = tl.load(gates + at + 2 * H, inside, other=0).to(REAL)
    m = tl.load(gates + at + 3 * H, inside, other=0).to(REAL)
    if d_carry is not None:
        d_h += tl.load(d_carry + here, inside, other=0).to(REAL)
    d_n = d_h * (1 - u) * (1 - n * n)
    tl.store(d_gates + at, d_n, inside)
    tl.store(d_gates + at + H, d_n * m * r * (1 - r), inside)
    tl.store(d_gates + at + 2 * H, d_h * (before - n) * u * (1 - u), inside)
    tl.store(d_gates + at + 3 * H, d_n * r, inside)
    along = d_before if d_carry is None else d_carry
    tl.store(along + here, d_h * u, inside)


@triton.jit(do_not_specialize=_BACKWARD)
def backward(
    gates, eps, mask, carries, initial, d_z, d_before, d_carry, d_gates, start, rows, before_start,
    before_rows, after_start, after_rows, H, CELL: tl.constexpr, ADDITIVE: tl.constexpr,
    PROJECTED: tl.constexpr, REAL: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Back through one step: the gradients of its gates and of the carry before it.

    ``d_before`` comes as the gradient of what the step after this one has read. A GRU without a
    carry of its own leaves there what flows along it. ``carries`` and ``initial`` are what was
    carried, None for an Elman cell. Behind a projection, ``d_z`` is ``(N, H)`` and the gradient of
    h itself.
    """
    row, unit, inside = _tile(rows, H, ROWS, UNITS)
    here, there = row * H + unit, (start + row) * H + unit
    at = (start + row) * H * 4 + unit
    if PROJECTED:
        d_h = tl.load(d_z + here, inside, other=0).to(REAL)
    else:
        d_h = _flow_back(
            eps, mask, d_z, d_before, row, unit, inside, start, after_start, after_rows, H,
            ADDITIVE, REAL,
        )  # fmt: skip
    if carries is None:
        _elman_backward(gates, d_gates, d_h, there, inside, CELL, REAL)
    else:
        had, began = inside & (row < before_rows), inside & (row >= before_rows)
        before = tl.load(carries + (before_start + row) * H + unit, had, other=0).to(REAL)
        before += tl.load(initial + here, began, other=0).to(REAL)
        if CELL == "lstm":
            _lstm_backward(
                gates, carries, before, d_carry, d_gates, d_h, at, here, there, inside, H, REAL
            )
        else:
            _gru_backward(gates, before, d_before, d_carry, d_gates, d_h, at, here, inside, H, REAL)


@triton.jit(do_not_specialize=_BACKWARD)
def receive(
    eps, mask, d_z, d_before, d_projected, start, rows, after_start, after_rows, H,
    ADDITIVE: tl.constexpr, REAL: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Back through the noise on what was projected: the gradient of the projection."""
    row, unit, inside = _tile(rows, H, ROWS, UNITS)
    d_h = _flow_back(
        eps, mask, d_z, d_before, row, unit, inside, start, after_start, after_rows, H,
        ADDITIVE, REAL,
    )  # fmt: skip
    tl.store(d_projected + (start + row) * H + unit, d_h, inside)
