"""The parts of `loop-reactive`: references, state, readiness, the tick of one request."""
