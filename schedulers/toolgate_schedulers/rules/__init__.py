"""The files that configure schedulers: read, checked, explained."""
