"""State of a fleet, read from the server once and judged once: the commands only show it."""
