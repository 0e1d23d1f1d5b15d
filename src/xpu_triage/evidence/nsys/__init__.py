"""Reader of Nsight Systems captures, exported to SQLite by `nsys export --type sqlite`, of every version."""

from .reader import is_export, read

__all__ = ["is_export", "read"]
