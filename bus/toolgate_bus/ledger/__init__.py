"""What is scarce: money and slots."""
