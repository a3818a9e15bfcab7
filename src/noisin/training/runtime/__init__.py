"""How a run is carried out: device, processes, signals, time, progress."""
