"""Events of coding agents' hooks as calls, and rulings as the answers to them."""
