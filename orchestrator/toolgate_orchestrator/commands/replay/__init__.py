"""`toolgate replay`: recorded agent runs through the real loop."""
