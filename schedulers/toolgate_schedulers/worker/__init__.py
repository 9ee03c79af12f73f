"""Code that runs a scheduler: it reads questions, decides, and answers."""
