"""Draw one comparison as a small picture: seeds, mean, interval, and what the claim allows."""

import math

from markupsafe import Markup

WIDTH, HEIGHT, EDGE = 150, 22, 6  # pixels
SAID = "every seed as a dot, the mean with its interval, and shaded what the claim allows"


def draw(seeds: list[float], mean: float, ends: tuple[float, float], allowed: tuple[float, float]):
    """Draw a comparison as SVG; return "" if it has no finite difference."""
    seeds = [value for value in seeds if math.isfinite(value)]
    if not seeds or not math.isfinite(mean):
        return Markup("")
    bounds = [value for value in (*ends, *allowed) if math.isfinite(value)]
    place = make_axis([0.0, mean, *seeds, *bounds])
    low, high = (place(value) for value in allowed)
    parts = [
        f'<rect class="allowed" x="{low:.1f}" width="{high - low:.1f}" height="{HEIGHT}"/>',
        f'<path class="zero" d="M{place(0):.1f} 1V{HEIGHT - 1}"/>',
    ]
    if math.isfinite(ends[0]):
        parts.append(f'<path class="ends" d="M{place(ends[0]):.1f} 14H{place(ends[1]):.1f}"/>')
    parts.append(f'<path class="mean" d="M{place(mean):.1f} 10V18"/>')
    parts += [f'<circle class="seed" cx="{place(value):.1f}" cy="6" r="2.4"/>' for value in seeds]
    return Markup(
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{SAID}</title>'
        f"{''.join(parts)}</svg>"
    )


def make_axis(values: list[float]):
    """Return a function that converts a value to pixels; infinite values are at the edges."""
    least, most = min(values), max(values)
    scale = (WIDTH - 2 * EDGE) / ((most - least) or 1)

    def place(value: float) -> float:
        return (
            min(max(EDGE + (value - least) * scale, 0), WIDTH)
            if math.isfinite(value)
            else (0 if value < 0 else WIDTH)
        )

    return place
