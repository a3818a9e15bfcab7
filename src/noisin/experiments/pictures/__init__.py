"""Pictures of runs: colours, axes, curves."""
