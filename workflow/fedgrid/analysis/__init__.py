"""Scores, published values and verdicts of collected runs; the layout of tables and figures."""
