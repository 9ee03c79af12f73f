"""The `toolgate` command and those of the bus."""
