"""``noisin tune``: the strength of noise or dropout for a model and its data, within a budget."""
