"""The command `approvals`: people answer held calls."""
