"""Goal pursuit: runs turn after turn until a judge is satisfied."""
