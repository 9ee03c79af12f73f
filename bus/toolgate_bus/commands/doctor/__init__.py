"""`toolgate doctor`: find what is wrong with an installation and its bus, and say what to change."""
