"""What the attacks use: the processes of the acceptance tests, on the same servers."""

import importlib.util
import sys
from pathlib import Path

ACCEPTANCE = Path(__file__).parents[1] / "acceptance"
# A conftest of another folder is none of ours until it is loaded.
_spec = importlib.util.spec_from_file_location("acceptance_fixtures", ACCEPTANCE / "conftest.py")
assert _spec is not None
assert _spec.loader is not None
acceptance = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = acceptance
_spec.loader.exec_module(acceptance)

crew = acceptance.crew
counted = acceptance.counted
rogue = acceptance.rogue
schedulers = acceptance.schedulers
schedulers_on = acceptance.schedulers_on
schedulers_with_alpha = acceptance.schedulers_with_alpha
statistics = acceptance.statistics
