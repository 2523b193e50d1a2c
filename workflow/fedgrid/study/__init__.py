"""Say what is to be run: studies, names and jobs. Nothing here changes a result.

The Snakefile imports this folder, so it does not import torch. `runtime/code/source.py` does not
count it as code of a result.
"""
