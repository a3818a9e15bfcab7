"""Tasks: data, cut into batches, and the unit of its score. Names load when first used."""
