"""Models: sequence models of an encoder, layers and a head; the language models of the paper."""

from noisin.models.base import Head as Head
from noisin.models.base import Loss as Loss
from noisin.models.base import Trainable as Trainable
from noisin.models.encoders import Values as Values
from noisin.models.encoders import Words as Words
from noisin.models.generation import generate as generate
from noisin.models.heads import Dense as Dense
from noisin.models.heads import Linear as Linear
from noisin.models.language import PRESETS as PRESETS
from noisin.models.language import LanguageModel as LanguageModel
from noisin.models.language import detach as detach
from noisin.models.layer import CELLS as CELLS
from noisin.models.sequence import SequenceModel as SequenceModel
from noisin.regularizers.sequences import Dropout as Dropout
from noisin.regularizers.sequences import Dropouts as Dropouts
