"""Who is measured, one file each.

A file has `prepare(task) -> play`, and `play(rounds, clock)` runs that many rounds of the task from
its initial weights and returns an `Outcome`. It starts the clock when all is set up and stops it
when the last round is over.
"""
