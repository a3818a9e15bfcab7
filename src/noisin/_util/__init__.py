"""Utilities for the whole library: checks, wording of messages, files, states."""
