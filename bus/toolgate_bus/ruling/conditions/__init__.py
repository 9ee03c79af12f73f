"""Conditions of rules on calls: arguments, paths, patterns, schemas. Pure."""
