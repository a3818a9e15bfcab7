"""What training minimises besides the mean nll."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from noisin.analysis import Penalty
from noisin.data import Batch
from noisin.models.base import mean_over_scored
from noisin.noise import Noise
from noisin.recurrent.functional import Mode
from noisin.regularizers.terms import Trace


@dataclass
class NoisePenalty:
    """The explicit regularizer of noise on the last layer, without feedback, as a term.

    Attributes:
        noise: the noise; a schedule replaces it in each epoch.
        mode: the mode of injection.
    """

    noise: Noise
    mode: Mode

    name: ClassVar[str] = "penalty"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty per target."""
        head = trace.head
        penalty = Penalty(head.likelihood, self.noise, self.mode)
        return mean_over_scored(penalty(trace.read[-1], head.V, head.bias), batch)
