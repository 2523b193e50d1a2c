"""Check a method before it is used: a plain loop to compare it with, and `fedgrid check`."""
