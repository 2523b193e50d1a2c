"""The page of verdicts: which claims of the papers hold, by the runs that exist. It trains nothing.

`evidence` judges the claims of a study at a scale, `making` says what was run, and `sheets` writes
these tables as CSV files. `sections` arranges them for readers, and `write` renders the pages: the
first one, one of each paper, and those of the rows of the files. Every number on them comes from a
row of these files, and names it.
"""
