"""What watches a run and changes no number: progress, remaining time, trackers."""
