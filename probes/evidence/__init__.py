"""What is measured and said: evidence records, answers, devices, configuration, errors, words. Imports nothing of ours."""
