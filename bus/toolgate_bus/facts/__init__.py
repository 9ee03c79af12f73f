"""Facts of a fleet: writing them, reading them, and joining them to decisions."""
