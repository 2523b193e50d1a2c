"""Tables and figures, one file each."""
