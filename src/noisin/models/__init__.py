"""Models: recurrent language models with noise and dropout."""

from noisin.models.dropout import Dropout as Dropout
from noisin.models.dropout import Dropouts as Dropouts
from noisin.models.generation import generate as generate
from noisin.models.language_model import PRESETS as PRESETS
from noisin.models.language_model import LanguageModel as LanguageModel
from noisin.models.language_model import detach as detach
from noisin.models.layer import CELLS as CELLS
