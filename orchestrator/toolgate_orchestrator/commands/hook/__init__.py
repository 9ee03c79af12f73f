"""`toolgate hook`: the gate for coding agents, written into their settings, taken out again, looked at."""
