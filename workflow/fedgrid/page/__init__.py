"""The page of verdicts: which claims of the papers hold, from runs that exist; nothing is trained.

`evidence` judges the claims of a study at a scale, `making` says what was run, and `sheets` writes
these tables as CSV files. `sections` arranges what readers see, and `write` renders it. Every
number of the page is formatted from a row of these files, and links to it.
"""
