"""Top floor: walks one case from question to report, and again."""
