"""Rules about limits that look like memory and are not: timers, launch sizes, counts of requests."""
