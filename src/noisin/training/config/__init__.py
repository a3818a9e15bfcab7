"""The settings of a run: one frozen section for each part of it. Nothing here needs torch."""

from noisin.training.config.run import LARGEST_SEED as LARGEST_SEED
from noisin.training.config.run import DataConfig as DataConfig
from noisin.training.config.run import DropoutConfig as DropoutConfig
from noisin.training.config.run import FamilyName as FamilyName
from noisin.training.config.run import ModelConfig as ModelConfig
from noisin.training.config.run import NoiseConfig as NoiseConfig
from noisin.training.config.run import RunConfig as RunConfig
from noisin.training.config.run import ScheduleConfig as ScheduleConfig
from noisin.training.config.run import TrainConfig as TrainConfig
from noisin.training.config.run import explain as explain
