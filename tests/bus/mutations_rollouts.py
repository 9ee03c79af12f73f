"""Changes for the worse of shares and undoing."""

from mutation import BUS, Mutant

RULES = f"{BUS}/state/rollout_rules.py"
RECORD = f"{BUS}/state/config_record.py"
MUTANTS = (
    Mutant(
        "rollouts",
        "the share is another for each rollout's session, whatever the percent",
        RULES,
        'int.from_bytes(hashed[:8], "big") * 100 < share << 64',
        'int.from_bytes(hashed[:8], "big") * 50 < share << 64',
        "../bus/state/test_rollout_rules.py",
    ),
    Mutant(
        "rollouts",
        "undo forgets what was in force before",
        RECORD,
        "*rest, before = record.past or",
        "before, *rest = record.past or",
        "../bus/state/test_config_record.py",
    ),
)
