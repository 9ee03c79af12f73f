"""What an author of a scheduler writes against."""
