"""What a rule says of a call: conditions, paths, patterns, schemas. Pure."""
