"""The engine: decompose, evolve, compose. Standard library and jinja2 only."""
