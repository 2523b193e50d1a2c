"""The tables and figures of FedLMD (ACM Multimedia 2023)."""
