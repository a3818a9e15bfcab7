"""Sweeps: many runs by several processes, each made exactly once.

:func:`read` reads one, without Optuna; :func:`noisin.experiments.sweep.driver.run` runs it.
"""

from noisin.experiments.sweep.definition import Sweep as Sweep
from noisin.experiments.sweep.reading import names as names
from noisin.experiments.sweep.reading import read as read
