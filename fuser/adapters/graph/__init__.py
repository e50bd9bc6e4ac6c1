"""Compiler passes on torch's graphs, each of which rewrites or reads a graph."""
