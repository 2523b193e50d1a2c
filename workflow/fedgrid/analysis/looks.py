"""How methods look in every figure of the project: one colour for each family of methods.

A family is what is before the first `-` or `+` of a method's name. The plain baselines and the
placebos are grey, and the study's own methods are bold. Methods of one colour differ by their line
style, and then by a mark; bars of one colour by their hatching.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product

from fedgrid.claim import needs_runs
from fedgrid.runtime.names import listed
from fedgrid.study.records import Study

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)  # Okabe and Ito's, without yellow, which is hard to see on white
BLACK, GREY, PALE = "#1a1a1a", "#6b6b6b", "#9a9a9a"
FAMILIES = {
    **{"fedavg": BLACK, "AB": BLACK, "uniform": GREY, "power": GREY, "local": GREY},
    **{"fedsls": VERMILLION, "fedsls_dynamic": PURPLE, "fedsl": BLUE, "fedau": SKY},
    **{"fedlmd": BLUE, "fedlmd_tf": SKY, "fedntd": VERMILLION, "fedntd_tf": ORANGE},
    **{"fedavg_kd": PURPLE, "fedavg_ls": GREEN, "fedrs": PURPLE, "fedcurv": GREEN},
    **{"moon": GREEN, "fedprox": ORANGE, "feddecorr": PURPLE, "scaffold": PURPLE},
    **{"fednova": SKY, "sgdm": GREEN, "fedbabu": BLUE, "fedper": BLUE},
    **{"AaBb": BLUE, "ABb": VERMILLION, "AaB": GREEN, "aB": ORANGE, "Ab": SKY, "ab": PURPLE},
    **{"SSP": VERMILLION, "SPS": GREEN, "PS": ORANGE, "SP": SKY},
}
ALIKE = dict.fromkeys((PURPLE, GREEN, GREY), PALE)  # for some who are colour-blind
STYLES = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MARKS = ("", "o", "s", "^", "D", "v", "P", "X")
SOLID, POINTS = ("-",), ("",)  # line styles of a figure in which they mean something else
HATCHES = ("", "////", "....", "xxxx", "----", "oo", "++")
BOLD, THIN = 1.8, 1.0  # points
OWN = 0.3  # of a study's claims are about its own method


def list_looks(
    names: Iterable[str],
    study: Study,
    methods: Mapping[str, str] | None = None,
    styles: Sequence = STYLES,
    marks: Sequence[str] = MARKS,
) -> dict[str, dict]:
    """Give each name its look: colour, line style, mark and width.

    A name is that of a method, or `methods` has its method. `styles` and `marks` are those that
    tell methods of one colour apart.
    """
    taken: Counter[str] = Counter()
    pairs = [*product(marks, styles)]
    placebos, own = find_placebos(study), find_own(study)
    looks: dict[str, dict] = {}
    for name in dict.fromkeys(names):
        method = (methods or {}).get(name, name)
        colour = PALE if is_placebo(method, placebos) else find_colour(method)
        alike = ALIKE.get(colour, colour)
        mark, style = pairs[taken[alike] % len(pairs)]
        taken[alike] += 1
        width = BOLD if method in own else THIN
        looks[name] = {"color": colour, "linestyle": style, "marker": mark, "linewidth": width}
        looks[name] |= {"markevery": 0.2, "zorder": 3 if method in own else 2}
    return looks


def find_colour(name: str) -> str:
    """Return the colour of a method's family; one that is not in FAMILIES has one by its name.

    Of several files, such as `contribution+fedavg`, the first that is in FAMILIES counts.
    """
    parts = [part.partition("-")[0] for part in name.split("+")]
    family = next((part for part in parts if part in FAMILIES), parts[0])
    by_name = COLOURS[int(sha256(family.encode()).hexdigest(), 16) % len(COLOURS)]
    return FAMILIES.get(family, by_name)


def list_fills(names: Iterable[str], study: Study) -> dict[str, dict]:
    """Give the bars of each method its colour and hatching."""
    every = list_looks(names, study, styles=SOLID, marks=HATCHES).items()
    return {
        name: {"facecolor": look["color"], "hatch": look["marker"], "edgecolor": "white"}
        for name, look in every
    }


def find_placebos(study: Study) -> tuple[set[str], tuple[str, ...]]:
    """Return the placebos that a study's products name, and the ends of placebos' names."""
    options = [entry.get("with", {}) for entry in study.get("products", {}).values()]
    groups = [name for given in options for name in (given.get("placebos") or {}).values()]
    names = {name for group in groups for name in listed(group)}
    ends = {end for given in options for end in listed(given.get("placebo"))}
    return names, ("_random", *sorted(ends))


def is_placebo(name: str, placebos: tuple[set[str], tuple[str, ...]]) -> bool:
    """Whether a method is a placebo of the study, or has the name of one."""
    names, ends = placebos
    return name not in FAMILIES and (name in names or name.partition("-")[0].endswith(ends))


def find_own(study: Study) -> set[str]:
    """Return the methods that a part OWN of a study's claims on runs is about."""
    claims = [*filter(needs_runs, study.get("claims", []))]
    about = [name for claim in claims for name in {*listed(claim.get("method"))}]
    return {name for name in about if about.count(name) >= OWN * len(claims)}
