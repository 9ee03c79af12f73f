"""The commands `scheduler`, `approvals` and `console`."""
