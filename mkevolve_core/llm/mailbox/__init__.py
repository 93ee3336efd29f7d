"""Calls answered through files, by people or by any program: the folder, the claims, both of its sides."""
