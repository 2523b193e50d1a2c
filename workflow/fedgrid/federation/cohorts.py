"""The number of clients in a round. No torch: the Snakefile imports this."""


def size(population: int, participation: float, sampler: str) -> int:
    """Return the number of clients of a round, rounded to the nearest whole number.

    The sampler "round" follows the code of FedNTD and FedLMD, which rounds down, but not below one:
    0.29 of 100 clients are 28 there.
    """
    if sampler == "round":
        return max(int(population * participation), 1)
    return round(population * participation)
