r"""The strength of the noise for any training loop: successive halving with a guard.

Noise slows training down at first and pays off late. Runs that are compared early therefore favour
too little of it, and plain successive halving ends with the least noise that was tried. The guard
rests on one assumption: *the best std grows with the length of training*, by about one step of the
grid (a factor of 1.6) whenever the length is three times as long. So those that go to the next rung
reach up to the std that will be best at the end by this rule. The best so far is among them if
enough go on, and is left behind otherwise. At least two go to the last rung, which is the whole
length. Only scores at that length decide.

That factor is what balancing two terms gives: if noise of variance v slows training as ``1 + v``,
and reduces overfitting, which grows like the number of epochs T, as ``1 / v``, then ``a v / T + b T
/ v`` has its minimum at v proportional to T, and std to its root: 1.7 for three times T.

The unit of cost is the epoch, so that the same budget means the same trials on every machine.
Nothing here needs torch.
"""

from __future__ import annotations

from noisin.tuning.search import Tuned as Tuned
from noisin.tuning.search import TuningTrial as TuningTrial
from noisin.tuning.search import tune as tune
