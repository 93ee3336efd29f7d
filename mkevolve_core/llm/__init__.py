"""Calls to language models: one client, a few providers, money, recording. SDKs are imported late."""
