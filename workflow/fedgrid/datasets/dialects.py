"""A made-up language in twenty dialects, for the quick scale: no file is needed.

Every role speaks a dialect. A text is a Markov chain over 20 letters: three times out of four a
letter is followed by its usual successor, and otherwise by any of the other 19. After twelve
letters all roles have the same successor; the successors of the other eight letters are in another
order for each role. So what is common can be learned together, and the rest by each role alone.

Sixteen letters predict the next one. The share of windows for which the best predictor is right:

    75.0 %    one that knows the role
    52.7 %    one that knows neither the role nor more than the last letter
    72.8 %    one that does not know the role, but knows all dialects, and judges by the whole
              window which dialect it is: a network has to learn this from all roles together

The first two are exact, as every letter is equally frequent; the last is the mean over the test
windows. A role has 120 windows of one text, and its first 24 are test windows (`_text.py`).
"""

from pathlib import Path

import numpy as np

from fedgrid.datasets import Split, _text

TRAIN = 1_920
TEST = 480
CLASSES = 20
SHAPE = (16,)
STATISTICS = {}
TOKENS = 20
WRITERS = 20
TEST_WRITERS = True
HASHES = (
    "19f05c37",
    "c8c9f949",
    "9738fa74",
    "62f157ad",
    "a284af24",
    "986459a4",
)

ROLES = 20
WINDOWS = 120  # of a role
OWN = 8  # letters whose successors differ between roles: the first ones
CHANCES = 4 * (TOKENS - 1)  # of these, each of the unusual successors has one


def load(root: Path) -> Split:
    """Return the windows of all roles, one role after the other in both sets."""
    random = np.random.RandomState(0)  # numpy guarantees this generator's stream
    successors = _successors(random)
    texts = [_text_of(usual, random) for usual in successors]
    return _text.split([_text.windows(text, *SHAPE) for text in texts])


def _successors(random: np.random.RandomState) -> np.ndarray:
    """Return the usual successor of each letter in each dialect, (ROLES, TOKENS)."""
    found = np.tile(random.permutation(TOKENS), (ROLES, 1))
    for usual in found:
        usual[:OWN] = random.permutation(usual[:OWN])
    return found


def _text_of(usual: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Return a text in a dialect, as long as its windows need, uint8."""
    text = [random.randint(TOKENS, dtype=np.int64)]
    for draw in random.randint(CHANCES, size=WINDOWS + SHAPE[0] - 1, dtype=np.int64):
        unusual = max(0, draw - CHANCES + TOKENS)  # 1 to 19 for the last 19 draws
        text.append((usual[text[-1]] + unusual) % TOKENS)
    return np.array(text, np.uint8)
