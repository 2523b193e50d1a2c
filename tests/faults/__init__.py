"""What was done to break a run, and what came of it: README.md."""
