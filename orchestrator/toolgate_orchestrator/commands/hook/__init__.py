"""`toolgate hook`: installs the gate in coding agents' settings, removes it, and shows its state."""
