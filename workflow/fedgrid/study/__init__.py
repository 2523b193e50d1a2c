"""What is to be run: studies, names and jobs. Nothing here changes a result; no torch.

The Snakefile imports this folder. `runtime/code/source.py` ignores it in the code of a result.
"""
