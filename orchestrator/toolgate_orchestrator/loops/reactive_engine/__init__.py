"""The parts of `loop-reactive`: references, state, readiness, and the tick of one request."""
