"""The paper: its results, recipes, tables and figure."""
