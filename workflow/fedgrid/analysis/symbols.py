"""Symbols as people write them: Greek letters for their names, and a real minus.

Numbers in files, names of files, configuration keys and columns keep the words. Tables, captions
and figures have the letters.
"""

import re
from unicodedata import lookup

GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "kappa", "lambda"),
    *("mu", "nu", "xi", "pi", "rho", "sigma", "tau", "phi", "chi", "psi", "omega"),
)
# Unicode writes lambda without its b.
LETTERS = {
    name: lookup(f"GREEK SMALL LETTER {name.upper().replace('LAMBDA', 'LAMDA')}") for name in GREEK
}
SIGNS = LETTERS | {"-": "\N{MINUS SIGN}"}
# What stands in backticks is code. A word may follow its file, as in `feddyn.alpha`, and have an
# index, as in alpha_0. A minus stands before a number, and not in a range or an exponent,
# or between blanks.
SYMBOL = re.compile(
    rf"`[^`]*`|(?<![\w\\/-])(?:{'|'.join(GREEK)})(?=(?:_\d+)*(?![\w/-]|\.\w))"
    r"|(?<![\w.)\]}-])-(?=\.?\d)|(?<= )-(?= )"
)


def write_symbols(text: str) -> str:
    """Return a text with Greek letters for their names, as in `mu=0.1`, and real minus signs."""
    return SYMBOL.sub(lambda found: SIGNS.get(found[0], found[0]), text)
