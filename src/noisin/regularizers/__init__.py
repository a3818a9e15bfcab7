"""Other regularizers of recurrent networks, as transitions that noise can wrap."""

from noisin.regularizers.batch_norm import BatchNormLSTMCell as BatchNormLSTMCell
from noisin.regularizers.cells import DropoutLSTMCell as DropoutLSTMCell
from noisin.regularizers.cells import Masks as Masks
from noisin.regularizers.highway import HighwayCell as HighwayCell
from noisin.regularizers.laws import set_dropout_law as set_dropout_law
from noisin.regularizers.layer_norm import LayerNormGRUCell as LayerNormGRUCell
from noisin.regularizers.layer_norm import LayerNormLSTMCell as LayerNormLSTMCell
from noisin.regularizers.melis import MelisLSTMCell as MelisLSTMCell
from noisin.regularizers.mogrifier import MogrifierLSTMCell as MogrifierLSTMCell
from noisin.regularizers.synaptic import SynapticNoise as SynapticNoise
from noisin.regularizers.transitions import Zoneout as Zoneout
from noisin.regularizers.transitions import ZoneoutMasks as ZoneoutMasks
from noisin.regularizers.updates import UpdateDropoutGRUCell as UpdateDropoutGRUCell
from noisin.regularizers.updates import UpdateDropoutLSTMCell as UpdateDropoutLSTMCell
from noisin.regularizers.weights import WeightDrop as WeightDrop
from noisin.regularizers.weights import WeightNoise as WeightNoise
