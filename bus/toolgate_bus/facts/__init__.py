"""What happened: the facts of a fleet, written, read and joined to decisions."""
