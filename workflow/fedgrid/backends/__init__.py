"""How a cohort's local steps are run, one file each."""
