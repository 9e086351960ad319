"""First floor: judge; never measure, draw or ask."""
