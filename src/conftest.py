"""What pytest leaves out of the doctests: a module whose extra is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["noisin/recurrent/kernels/triton_cells.py"]
