"""The schedulers' side: read inboxes as a consumer group, and write answers."""
