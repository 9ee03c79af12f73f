"""Connections to the server: one, a cluster's, or what sentinels name; commands, and how they are refused."""
