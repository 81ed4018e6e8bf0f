"""fast: what changes time or memory and never a number."""
