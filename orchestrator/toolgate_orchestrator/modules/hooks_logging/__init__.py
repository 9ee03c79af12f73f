"""Amplifier hook module `hooks-logging`: the events of a session as lines of JSON."""
