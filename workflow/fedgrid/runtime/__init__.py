"""How a command runs: its arguments, files, records and machine. Nothing here changes a result.

`source.py` leaves this folder out of the code that a result depends on.
"""
