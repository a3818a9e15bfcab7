"""The report about all runs of a folder."""
