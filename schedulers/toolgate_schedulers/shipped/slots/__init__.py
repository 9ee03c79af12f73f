"""The shipped scheduler `slots`: a limit on concurrent calls."""
