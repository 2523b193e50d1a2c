"""The tables and figures of FedSLS (ACM Multimedia 2024)."""
