"""The engine's speed beside a plain loop's and other simulators'.

`python -m tests.benchmarks`; not part of `make test`; see README.md.
"""
