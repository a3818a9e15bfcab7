"""The names of the cells. Nothing here needs torch."""

CELL_NAMES = ("lstm", "gru", "elman-tanh", "elman-sigmoid", "elman-relu")
