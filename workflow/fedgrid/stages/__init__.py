"""The stages of a run, a file each: what its command computes, and what its result depends on.

`stages/train.py` is the root of the code that counts for a trained run (`runtime/code/source.py`).
A stage imports the large packages inside its functions, so that a command can ask a process that
has them already to work for it (`runtime/warm.py`).
"""
