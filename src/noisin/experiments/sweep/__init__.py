"""Sweeps: many runs, by several processes, each exactly once.

:func:`read` one, without Optuna; :func:`noisin.experiments.sweep.driver.run` makes its runs.
"""

from noisin.experiments.sweep.definition import Sweep as Sweep
from noisin.experiments.sweep.reading import names as names
from noisin.experiments.sweep.reading import read as read
