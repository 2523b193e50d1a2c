"""Finished runs: whether they are current, their tables, what is kept with a study, what can go.

`identity.py` says what a result was made with and whether this is what would make it today. All
other questions about finished runs are asked here, too: `tables.py` collects their files, `kept.py`
reads those kept with a study and `keeping.py` adds to them, `verifying.py` holds every file to its
record, `trained_again.py` trains runs again and compares them, `deletable.py` finds what can go.
"""
