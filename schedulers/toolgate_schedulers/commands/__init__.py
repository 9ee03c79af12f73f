"""The commands `scheduler`, `approvals`, `console`."""
