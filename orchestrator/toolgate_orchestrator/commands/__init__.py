"""The commands that host agents: run, chat, replay, demo, bench."""
