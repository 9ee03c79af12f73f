"""The schedulers that come with Toolgate."""
