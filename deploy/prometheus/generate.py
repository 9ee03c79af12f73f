"""Write the rules for the Prometheus operator: `python deploy/prometheus/generate.py [FILE]`.

A PrometheusRule for each file of rules/, its groups word for word, comments included. The result,
kubernetes/monitoring/rules.yaml, is committed; a test holds it to this.
"""

import sys
from pathlib import Path
from textwrap import indent

HERE = Path(__file__).parent
TARGET = HERE.parent / "kubernetes" / "monitoring" / "rules.yaml"
HEAD = "# Made of deploy/prometheus/rules by deploy/prometheus/generate.py: change those, and run it.\n"


def wrap_rules(file: Path) -> str:
    """One file of rules as an object of Kubernetes."""
    remarks, groups = file.read_text().split("groups:\n", 1)
    head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
    return f"{remarks}{head}metadata: {{name: {file.stem}}}\nspec:\n  groups:\n{indent(groups, '  ')}"


def main(target: Path) -> None:
    """Write them all."""
    target.write_text(HEAD + "---\n".join(wrap_rules(file) for file in sorted(HERE.glob("rules/*.yml"))))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
