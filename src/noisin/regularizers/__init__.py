"""Regularizers of recurrent networks beside noise, as transitions that noise can wrap."""

from noisin.regularizers.dropout import DropoutLSTMCell as DropoutLSTMCell
from noisin.regularizers.dropout import Masks as Masks
from noisin.regularizers.zoneout import Zoneout as Zoneout
