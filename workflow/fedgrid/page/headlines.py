"""The finding of each paper in one row: our difference, the printed one, and that of a placebo.

Of the comparisons of the headline's sentence it is the one of which the paper prints the largest
difference, or the first if it prints none; and of its placebos the one with the largest gain.
"""

import math
from collections import Counter
from collections.abc import Iterator

from fedgrid.page.bars import Bar
from fedgrid.page.sections import Paper

COLUMNS = ("label", "difference", "low", "high", "printed", "seeds")


def list_headlines(papers: list[Paper]) -> Iterator[dict]:
    """Yield a row for each paper whose headline has runs."""
    for paper in papers:
        if at := paper.headline["at"]:
            bars = [bar for bar in at.panels[0].bars if bar.placebos] or at.panels[0].bars
            bar = max(bars, key=lambda bar: -math.inf if math.isnan(bar.printed) else bar.printed)
            names = {"study": paper.name, "claim": at.row["claim"], "scale": at.scale}
            counts = {name: at.row[name] for name in ("held", "undecided", "failed", "comparisons")}
            said = {"says": paper.headline["shown"].row["says"], "verdict": at.row["our_verdict"]}
            found = Counter(row["verdict"] for row in at.controls)
            said["placebos"] = ", ".join(f"{word} ({n})" for word, n in found.most_common())
            yield names | said | {name: bar.row[name] for name in COLUMNS} | counts | describe(bar)


def describe(bar: Bar) -> dict:
    """Return the placebo with the largest gain, and its gain with its interval."""
    placebo = max(bar.placebos, key=lambda each: each.mean, default=None)
    if placebo is None:
        return {}
    low, high = placebo.ends
    gain = {"placebo_gain": placebo.mean, "placebo_gain_low": low, "placebo_gain_high": high}
    return {"placebo": placebo.row["placebo_label"], **gain}
