"""Federated-learning papers as Snakemake targets."""

__version__ = "0.1.0"
