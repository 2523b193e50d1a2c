"""Federated training: a round, its clients, its backends, and evaluation."""
