"""Rules about use: it fits and it runs, but the text is not used."""
