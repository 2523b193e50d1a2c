"""The tables and figures of the study of private parts of networks (Li et al., 2021)."""
