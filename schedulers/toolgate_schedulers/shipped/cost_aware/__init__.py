"""The scheduler `cost-aware`: budgets, and cheaper equivalents."""
