"""The package's files as text: which code a result depends on, and which contracts files keep."""
