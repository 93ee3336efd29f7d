"""A fake LLM server for tests, and for trying everything without a key: `mkevolve fake-llm`."""

from mkevolve_core.llm.fake.plan import Call, Fault, Planned, Seen
from mkevolve_core.llm.fake.server import FakeLLM, serve

__all__ = ["Call", "FakeLLM", "Fault", "Planned", "Seen", "serve"]
