"""The ladder: its text, its facts and questions, the search for the boundary, and what its answers are worth. Pure; nothing here sends."""
