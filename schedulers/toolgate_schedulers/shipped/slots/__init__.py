"""The shipped scheduler `slots`."""
