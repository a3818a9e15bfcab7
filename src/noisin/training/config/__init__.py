"""The settings of a run: one frozen section for each part of it. Nothing here needs torch."""

from noisin.training.config.data import DataConfig as DataConfig
from noisin.training.config.latent import AnnealingConfig as AnnealingConfig
from noisin.training.config.latent import LatentConfig as LatentConfig
from noisin.training.config.model import DropoutConfig as DropoutConfig
from noisin.training.config.model import GateDropoutConfig as GateDropoutConfig
from noisin.training.config.model import HeadConfig as HeadConfig
from noisin.training.config.model import ModelConfig as ModelConfig
from noisin.training.config.model import ZoneoutConfig as ZoneoutConfig
from noisin.training.config.noise import NoiseConfig as NoiseConfig
from noisin.training.config.noise import ScheduleConfig as ScheduleConfig
from noisin.training.config.objective import FraternalConfig as FraternalConfig
from noisin.training.config.objective import ImportanceConfig as ImportanceConfig
from noisin.training.config.own import OwnConfig as OwnConfig
from noisin.training.config.run import LARGEST_SEED as LARGEST_SEED
from noisin.training.config.run import RunConfig as RunConfig
from noisin.training.config.run import explain as explain
from noisin.training.config.train import TrainConfig as TrainConfig
