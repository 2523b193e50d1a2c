"""Federated methods, one file each."""

from fedgrid.runtime.places import search

__path__ = search("methods")  # with the folder of one's own paper
