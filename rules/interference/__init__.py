"""Rules about what is beside the run, or builds up over time: other programs, earlier runs, drivers, hardware."""
