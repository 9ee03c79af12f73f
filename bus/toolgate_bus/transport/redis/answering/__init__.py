"""The schedulers' half: inboxes are read as a group, answers go out."""
