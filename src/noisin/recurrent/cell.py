"""The list of cells: every fact about a cell that kernels, layers and models need.

The names are those of :mod:`noisin.recurrent.names`. A name without kernels has a row of defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from noisin._util.settings import load_object
from noisin.errors import InvalidValue
from noisin.recurrent import functional
from noisin.recurrent.functional import States
from noisin.recurrent.names import CELL_CLASSES, CELL_NAMES

Site = Literal["read", "state"]  # of a GRU's noise


@dataclass(frozen=True, eq=False)
class CellSpec:
    """One kind of cell.

    Gates lie in ``slots`` of H columns: the input adds to the first ``inputs`` of them and the
    recurrence to the last ``recurrent``. The slots of a GRU are n, r, u and m, the state's part of
    n: ``n = tanh(n_x + r m)``.

    Attributes:
        name: one of :data:`~noisin.recurrent.names.CELL_NAMES`, or ``"package.module:Class"``.
        module: the class, as ``"package.module:Class"``.
        arguments: of that class, beside its sizes.
        cell: the class of one step without noise, where ``module`` runs whole sequences.
        step: the transition ``(gates_x, state, w) -> state``; None for a cell without kernels.
        state: the tensors of the state that a layer of it returns, the hidden state first.
        carry: whether a kernel's state has a clean tensor beside z: an LSTM's c, a GRU's carry.
        slots, inputs, recurrent: of the gates.
        code: the cell's number in ``kernels/cells.h``.
        torch_kernel: the name of torch's kernel for whole layers; None where torch has none.
        fused: whether that kernel is one operation on a CPU too, which wants its state in the dtype
            of the products; torch composes the others of single operations.
        on_state: the same cell with noise on its whole state, ``site="state"``, if that differs.
    """

    name: str
    module: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    step: Callable[..., States] | None = None
    state: tuple[str, ...] = ("h",)
    carry: bool = False
    slots: int = 1
    inputs: int = 1
    recurrent: int = 1
    code: int | None = None
    torch_kernel: str | None = None
    fused: bool = False
    on_state: CellSpec | None = None
    cell: str | None = None

    def at(self, site: Site) -> CellSpec:
        """The cell with its noise at this site."""
        return self.on_state if site == "state" and self.on_state is not None else self

    @property
    def memory(self) -> bool:
        """Whether its state has a memory c beside h."""
        return len(self.state) > 1

    @property
    def masks(self) -> bool:
        """Whether a mask can be on what the gates read, because the carry, if any, is separate."""
        return self.code is not None and (self.slots == 1 or self.carry)

    def load(self) -> Callable[..., Any]:
        """The class of ``module``."""
        return load_object(self.module, "cell")

    def load_cell(self) -> Callable[..., Any]:
        """The class of one step."""
        return load_object(self.cell or self.module, "cell")


def _elman(nonlinearity: str, code: int, torch_kernel: str | None) -> CellSpec:
    name = f"elman-{nonlinearity}"
    return CellSpec(
        name,
        CELL_CLASSES[name],
        {"nonlinearity": nonlinearity},
        partial(functional.elman, activation=nonlinearity),
        code=code,
        torch_kernel=torch_kernel,
        cell="noisin.recurrent.cells:ElmanCell",
    )


def _gru(code: int, carry: bool, on_state: CellSpec | None = None) -> CellSpec:
    return CellSpec(
        "gru",
        CELL_CLASSES["gru"],
        step=functional.gru,
        carry=carry,
        slots=4,
        inputs=3,
        recurrent=3,
        code=code,
        torch_kernel="gru",
        on_state=on_state,
        cell="torch.nn:GRUCell",
    )


_LSTM = CellSpec(
    "lstm",
    CELL_CLASSES["lstm"],
    step=functional.lstm,
    state=("h", "c"),
    carry=True,
    slots=4,
    inputs=4,
    recurrent=4,
    code=3,
    torch_kernel="lstm",
    fused=True,
    cell="torch.nn:LSTMCell",
)
_WITH_KERNELS = {
    spec.name: spec
    for spec in (
        _elman("tanh", 0, "rnn_tanh"),
        _elman("relu", 1, "rnn_relu"),
        _elman("sigmoid", 2, None),
        _LSTM,
        _gru(4, carry=True, on_state=_gru(5, carry=False)),
    )
}

CELLS: Mapping[str, CellSpec] = {
    name: _WITH_KERNELS.get(name, CellSpec(name, module)) for name, module in CELL_CLASSES.items()
}

# Those that the kernels compute, one for each code.
KERNEL_CELLS: Mapping[str, CellSpec] = {
    f"{spec.name}-{site}" if spec.on_state else spec.name: spec.at(site)
    for spec in CELLS.values()
    for site in (get_args(Site) if spec.on_state else ("read",))
    if spec.code is not None
}


def find(cell: str) -> CellSpec:
    """The cell of this name, or of this ``"package.module:Class"``."""
    if cell in CELLS:
        return CELLS[cell]
    if isinstance(cell, str) and ":" in cell:
        return CellSpec(cell, cell)
    raise InvalidValue(
        f"cell must be {' or '.join(map(repr, CELL_NAMES))}, or 'package.module:Class' of your "
        f"own, got {cell!r:.60}."
    )
