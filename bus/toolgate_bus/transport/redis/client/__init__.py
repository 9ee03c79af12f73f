"""Connections to the server: to one, to a cluster, or to what sentinels name; commands and their refusals."""
