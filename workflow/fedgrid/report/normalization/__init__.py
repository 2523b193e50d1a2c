"""The tables and figures of client contribution normalisation (arXiv 2411.06352)."""
