"""Second floor: tell what was measured and judged."""
