"""Runs in words: the title of a task, the label of a point, and what regularizes a model."""

from noisin.experiments.words.labels import points as points
from noisin.experiments.words.regularized import dropout as dropout
from noisin.experiments.words.regularized import dropout_std as dropout_std
from noisin.experiments.words.regularized import has_dropout as has_dropout
from noisin.experiments.words.regularized import is_plain as is_plain
from noisin.experiments.words.regularized import kind as kind
from noisin.experiments.words.regularized import noise as noise
from noisin.experiments.words.regularized import regularizers as regularizers
from noisin.experiments.words.titles import subject as subject
from noisin.experiments.words.titles import task as task
