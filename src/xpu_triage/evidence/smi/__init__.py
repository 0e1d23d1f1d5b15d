"""Readers of what the vendors' tools print about a device: one module a tool family and layout."""
