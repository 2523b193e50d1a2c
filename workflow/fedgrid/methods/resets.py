"""A placebo for private parts: at each participation they begin with their first weights again.

All clients begin a run with the same private entries. With this placebo a client begins every round
with these, so that it remembers nothing from one participation to the next. The placebo `forgets`
of the ways to privatise (`_partial.py`) takes away more: its private entries are drawn anew for
each client and round, so that clients do not have the same initial weights either. Combine it with
the method whose private part is in question.
"""

from fedgrid.method import Method


def method() -> Method:
    """There is nothing to choose."""
    return Method(resets=True)
