"""The names of the cells and the class of each, readable without torch.

A cell is one class and one row here. Classes that run whole sequences, such as ``noisin.LSTM``,
have kernels, whose facts are in :mod:`noisin.recurrent.cell`. Any other class is constructed as
``Class(input_size, hidden_size, **arguments)``, called as ``(x, state) -> state`` and run step by
step by ``noisin.Unrolled``; or, if it has ``coefficients(x) -> (a, b)`` of an affine recurrence,
for all steps at once by ``noisin.Scanned``.
"""

from __future__ import annotations

from collections.abc import Mapping

CELL_CLASSES: Mapping[str, str] = {
    "lstm": "noisin.recurrent.modules:LSTM",
    "gru": "noisin.recurrent.modules:GRU",
    "elman-tanh": "noisin.recurrent.modules:RNN",
    "elman-sigmoid": "noisin.recurrent.modules:RNN",
    "elman-relu": "noisin.recurrent.modules:RNN",
    "highway": "noisin.regularizers.highway:HighwayCell",
    "melis-lstm": "noisin.regularizers.melis:MelisLSTMCell",
    "mogrifier-lstm": "noisin.regularizers.mogrifier:MogrifierLSTMCell",
    "layer-norm-lstm": "noisin.regularizers.layer_norm:LayerNormLSTMCell",
    "layer-norm-gru": "noisin.regularizers.layer_norm:LayerNormGRUCell",
    "batch-norm-lstm": "noisin.regularizers.batch_norm:BatchNormLSTMCell",
    "min-gru": "noisin.recurrent.scanned:MinGRUCell",
    "min-lstm": "noisin.recurrent.scanned:MinLSTMCell",
}
CELL_NAMES = tuple(CELL_CLASSES)
# Those with kernels; their classes take no arguments from a config.
KERNEL_NAMES = ("lstm", "gru", "elman-tanh", "elman-sigmoid", "elman-relu")
# Those that are affine in their state.
AFFINE_NAMES = ("min-gru", "min-lstm")
# Those whose whole state is h.
WITHOUT_MEMORY = (
    *("gru", "elman-tanh", "elman-sigmoid", "elman-relu", "highway", "layer-norm-gru"),
    *AFFINE_NAMES,
)
