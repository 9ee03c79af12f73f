"""`toolgate replay`: puts recorded agent runs through the real loop."""
