"""The scheduler `router`: other tools for the same work."""
