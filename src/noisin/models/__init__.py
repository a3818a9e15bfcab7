"""Models: recurrent language models with noise and dropout."""

from noisin._util.states import detach as detach
from noisin.models.generation import generate as generate
from noisin.models.language import PRESETS as PRESETS
from noisin.models.language import LanguageModel as LanguageModel
from noisin.recurrent.cell import CELLS as CELLS
from noisin.regularizers.sequences import Dropout as Dropout
from noisin.regularizers.sequences import Dropouts as Dropouts
