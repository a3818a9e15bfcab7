"""Other regularizers of recurrent networks, as transitions that noise can wrap."""

from noisin.regularizers.cells import DropoutLSTMCell as DropoutLSTMCell
from noisin.regularizers.cells import Masks as Masks
from noisin.regularizers.transitions import Zoneout as Zoneout
from noisin.regularizers.transitions import ZoneoutMasks as ZoneoutMasks
