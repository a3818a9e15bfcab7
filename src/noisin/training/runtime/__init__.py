"""The runtime of a run: device, processes, signals, time, progress."""
