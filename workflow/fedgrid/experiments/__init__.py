"""Measurements of a study that need no federated run."""
