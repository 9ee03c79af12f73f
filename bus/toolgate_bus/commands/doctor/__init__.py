"""`toolgate doctor`: what is wrong with an installation and its bus, and what to change. Changes nothing."""
