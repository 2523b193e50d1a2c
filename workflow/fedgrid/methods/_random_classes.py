"""A random order of the classes for each client of a round, for placebos that mask classes."""

import torch

from fedgrid.method import Cohort, Memory

ORDER = "class_order"  # in a client's memory of this round


def send_orders(cohort: Cohort) -> list[Memory]:
    """Return for each client the place (K,) of every class in an order that is drawn for it."""
    generator = torch.Generator().manual_seed(cohort.noise)
    clients, classes = cohort.counts.shape
    orders = [torch.randperm(classes, generator=generator) for _ in range(clients)]
    return [{ORDER: order.to(cohort.counts.device, non_blocking=True)} for order in orders]
