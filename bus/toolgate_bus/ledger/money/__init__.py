"""Budgets: reservations, payments, and their recovery."""
