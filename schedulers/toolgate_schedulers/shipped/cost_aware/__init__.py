"""The scheduler `cost-aware`: budgets, and what is cheaper."""
