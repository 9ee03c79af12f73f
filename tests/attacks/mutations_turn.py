"""Changes for the worse that the tests of turns, of connections and of stopping must notice."""

from mutation import BUS, Mutant

MUTANTS = (
    Mutant(
        "law 5",
        "who stops agents does not hear of those that were gone before the next heartbeat",
        f"{BUS}/orchestrator_bus.py",
        "                        self._left(),\n",
        '                        ("DEL", self._keys.agents(self.orchestrator)),\n',
        "../bus/test_redis_bus.py"
        "::test_who_gives_the_order_hears_of_a_turn_that_began_and_ended_between_two_heartbeats",
    ),
)
