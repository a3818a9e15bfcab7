"""The paper's theory as tools, for your own models as well as those of noisin."""

from noisin.analysis.printed import printed_regularizer as printed_regularizer
from noisin.analysis.regularizer import Penalty as Penalty
from noisin.analysis.regularizer import Regularizer as Regularizer
from noisin.analysis.regularizer import explicit_regularizer as explicit_regularizer
from noisin.analysis.risk import Measured as Measured
from noisin.analysis.risk import Risk as Risk
from noisin.analysis.risk import expected_kl as expected_kl
from noisin.analysis.risk import fisher_penalty as fisher_penalty
from noisin.analysis.risk import risk_decomposition as risk_decomposition
from noisin.analysis.unbiasedness import Unbiasedness as Unbiasedness
from noisin.analysis.unbiasedness import check_unbiased as check_unbiased
