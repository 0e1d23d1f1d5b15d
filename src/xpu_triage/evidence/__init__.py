"""Readers: one kind of evidence a module, each turning a file into a Trace, Samples or Signals."""
