"""The visual-fidelity study: how similar encodings are to their images (FedSLS, section 4.3)."""
