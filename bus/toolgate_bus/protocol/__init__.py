"""What travels: events, their bytes, signatures, the names of keys. Pure."""
