"""Recurrent networks with noise: layers, cells, and the kernels that compute them."""
