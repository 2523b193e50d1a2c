"""The privacy that Gaussian noise gives, by the accountant of the package dp-accounting.

Each round takes part of the population, adds up changes of norm at most S, and adds noise with the
deviation z S to the sum. A pair (epsilon, delta) says how much one client's data can change what is
seen of all rounds. The accountant composes Rényi divergences (Mironov, CSF 2017; Mironov, Talwar
and Zhang, 2019), as if each client took part with the probability `share`, independently of the
others. A round here has a fixed number of clients, so this is the usual approximation of it
(McMahan et al., ICLR 2018).
"""

from functools import cache
from typing import Any

from fedgrid.runtime.names import UsageError

ORDERS = (*range(2, 64), 80, 100, 128, 256, 512, 1024)  # of Rényi divergences
MOST = 1e4  # the largest noise multiplier that is tried


@cache
def spent(noise: float, share: float, rounds: int, delta: float) -> float:
    """Return epsilon after so many rounds with the noise multiplier `noise`; infinite for 0."""
    if not rounds:
        return 0.0
    if not noise:
        return float("inf")
    return float(accountant().compose(event(noise, share, rounds)).get_epsilon(delta))


@cache
def noise_for(epsilon: float, share: float, rounds: int, delta: float) -> float:
    """Return the noise multiplier with which all rounds spend `epsilon`."""
    import dp_accounting as dp

    if spent(MOST, share, rounds, delta) > epsilon:
        raise UsageError(
            f"dp_fedavg: no noise gives epsilon {epsilon} with delta {delta} after {rounds} rounds "
            f"in which a client takes part with the probability {share:g}: raise epsilon or delta"
        )
    bracket = dp.LowerEndpointAndGuess(1e-3, 1.0)
    made = dp.calibrate_dp_mechanism(
        accountant, lambda noise: event(noise, share, rounds), epsilon, delta, bracket
    )
    return float(made)


def accountant() -> Any:
    """Return an accountant that has seen nothing; UsageError without the package."""
    try:
        from dp_accounting.rdp import RdpAccountant
    except ModuleNotFoundError:
        raise UsageError(
            "dp_fedavg computes its epsilon with the package dp-accounting, which is not "
            "installed: install it, for example by `pip install dp-accounting`"
        ) from None
    return RdpAccountant(ORDERS)


def event(noise: float, share: float, rounds: int) -> Any:
    """Return what happens in all rounds, for the accountant."""
    import dp_accounting as dp

    one = dp.PoissonSampledDpEvent(share, dp.GaussianDpEvent(noise))
    return dp.SelfComposedDpEvent(one, rounds)
