"""Read files that people write, within bounds, and check them by a model. Errors name file and line."""
