"""A method's functions, called with checks: what they get stays as it is, what they give is right.

`calling.py` wraps every function, `rules.py` says what each must give, `trial.py` tries those of a
local step before the first round, and `state.py` finds what a method keeps in Python between calls.
"""
