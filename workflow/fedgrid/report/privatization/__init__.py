"""Products of the study of privatisation ways (Li et al., 2021)."""
