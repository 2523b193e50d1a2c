"""Which printed percentages a test set can give, and how their last digits are distributed.

An accuracy that is measured once on n images is a multiple of 100/n percent. A mean over s runs is
a multiple of 100/(n s), and the same holds for a mean over several evaluations of a run. Here a
number of images is the product of all of these. A printed value is possible if one of these
multiples is rounded to it: the GRIM test (Brown and Heathers, Social Psychological and Personality
Science 2017). A multiple half-way between two printed values may be rounded to either.

The test is informative only for fewer than 100 * 10**decimals images. With so many images the
multiples are as close as the printed values, and every value is possible.

Printed values are `Decimal` numbers in percent, with as many decimals as are printed. The counts
are of whole numbers, so that nothing is lost in rounding.
"""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
from scipy import stats

DIGITS = 10


def is_possible(value: Decimal, decimals: int, images: int) -> bool:
    """Whether some number of correct images, 0 to `images`, gives the printed percentage."""
    shown, whole = count_units(value, decimals), 2 * size_of_print(decimals)
    least = -(-images * (2 * shown - 1) // whole)  # rounded up
    most = images * (2 * shown + 1) // whole  # rounded down
    return max(least, 0) <= min(most, images)


def count_units(value: Decimal, decimals: int) -> int:
    """Return a printed percentage in units of its last digit."""
    return int(value.scaleb(decimals))


def size_of_print(decimals: int) -> int:
    """Return the least number of images with which every value from 0 to 100 is possible."""
    return 100 * 10**decimals


def all_possible(values: Sequence[Decimal], decimals: int, images: int) -> bool:
    """Whether a mean over `images` images can give every value."""
    return all(is_possible(value, decimals, images) for value in values)


def least_fit(values: Sequence[Decimal], decimals: int) -> int | None:
    """Return the least number of images that can give all values; None if no number can.

    It is at most `size_of_print`.
    """
    sizes = range(1, size_of_print(decimals) + 1)
    return next((n for n in sizes if all_possible(values, decimals, n)), None)


def largest_fit(values: Sequence[Decimal], decimals: int) -> int | None:
    """Return the largest number of images below `size_of_print` that can give all values, or None.

    Every number from `size_of_print` on can give them, too. So the result limits the size of a test
    set only if something else shows that the set is small.
    """
    sizes = range(size_of_print(decimals) - 1, 0, -1)
    return next((n for n in sizes if all_possible(values, decimals, n)), None)


def coarsest_step(values: Sequence[Decimal], decimals: int) -> Decimal:
    """Return the largest of 1, 0.5, 0.2, 0.1, 0.05 and so on of which all values are multiples.

    The unit is percentage points. The smallest step is that of the last printed digit.
    """
    steps = (Decimal(k).scaleb(-d) for d in range(decimals + 1) for k in ((5, 2, 1) if d else (1,)))
    return next(step for step in steps if not any(value % step for value in values))


def last_digits(values: Sequence[Decimal], decimals: int) -> list[int]:
    """Return how many values end with 0, with 1, and so on up to 9."""
    ends = [count_units(value, decimals) % DIGITS for value in values]
    return [ends.count(digit) for digit in range(DIGITS)]


def count_even(counts: Sequence[int]) -> int:
    """Return how many last digits are even."""
    return sum(counts[::2])


def p_even(counts: Sequence[int]) -> float:
    """Return p of the exact two-sided binomial test that half of the last digits are even."""
    return float(stats.binomtest(count_even(counts), sum(counts)).pvalue)


def p_uniform(counts: Sequence[int]) -> float:
    """Return p of the exact chi-square test that all last digits are equally likely.

    That is the probability of a statistic as large as the one observed. With equal expectations
    the statistic grows with the sum of the squared counts, a whole number, whose distribution is
    computed digit by digit. The counts of the digits are taken as independent Poisson numbers,
    which are multinomial where their sum is that of the counts.
    """
    total, bound = sum(counts), sum(count**2 for count in counts)
    chances = stats.poisson.pmf(np.arange(total + 1), total / len(counts))
    chances_of_sums = np.zeros(
        (total + 1, bound + 1)
    )  # by sum of counts, and sum of squares up to `bound`
    chances_of_sums[0, 0] = 1
    for _ in counts:
        chances_of_sums = add_digit(chances_of_sums, chances)
    return float(chances_of_sums[total, bound] / chances_of_sums[total].sum())


def add_digit(before: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Add one digit to the distribution; its last column has all sums of squares from it on."""
    after = np.zeros_like(before)
    last = before.shape[1] - 1
    for count, chance in enumerate(chances):
        part, kept = before[: len(before) - count], max(last - count**2, 0)
        after[count:, last - kept : last] += chance * part[:, :kept]
        after[count:, last] += chance * part[:, kept:].sum(axis=1)
    return after
