"""Goal pursuit: turn after turn until a judge is satisfied."""
