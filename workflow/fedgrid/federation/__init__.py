"""The data of every client, the cohort of every round, and the order of samples."""
