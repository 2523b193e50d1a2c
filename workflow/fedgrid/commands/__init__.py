"""The commands, a file each: what it is given, one call, and what it wrote (`records.Work`).

`fedgrid train` runs `commands/train.py`. A command imports no other command. What computes is in
the rooms below, and only that counts in the code of a result (`runtime/code/source.py`).
"""
