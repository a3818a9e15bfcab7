"""Experiments: shipped settings, runs side by side, and the pictures and tables made of records."""
