"""Build the engine of a run, run its rounds, and write its files."""
