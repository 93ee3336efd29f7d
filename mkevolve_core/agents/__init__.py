"""The agents that ask an LLM: what each asks and what it reads from the reply; one file an agent."""
