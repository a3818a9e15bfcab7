"""The libraries that compute the products of a run, which are part of its arithmetic."""

from __future__ import annotations

from noisin._util.products import text_of
from noisin.likelihoods._chunked import HEAD
from noisin.recurrent.kernels.products import LAYER


def chosen_products() -> str:
    """The candidate for each kind and size of product, as a record has it.

    With the present number of threads; measured now if they were never measured on this machine.
    """
    return text_of({**LAYER.choice(), **HEAD.choice()})
