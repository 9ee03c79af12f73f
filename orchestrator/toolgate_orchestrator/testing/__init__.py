"""Hold an adapter of your own to what Toolgate promises: write a `Harness`, run the suite.

    from toolgate_orchestrator.testing import AdapterSuite

    class TestMyFramework(AdapterSuite):
        harness = MyHarness()

Each column of the kit is then a test of pytest, against a real server and real scheduler processes
(`toolgate-bus[embedded]`). `docs/frameworks.md` leads through it.
"""
