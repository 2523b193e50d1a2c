"""`fedgrid.run`: one run in this process, with the numbers of the commands, and no Snakemake.

`api.py` has the public functions, `names.py` finds the run that the arguments name, `stages.py`
runs the stages, `result.py` reads what they left, and `session.py` keeps the settings of a notebook
and of a run apart.
"""
