"""The orchestrators: one file for each loop, with its differences from the others."""
