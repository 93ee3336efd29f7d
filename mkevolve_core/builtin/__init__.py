"""The same agents without an LLM: rule-based, deterministic, labelled "built-in" everywhere."""
