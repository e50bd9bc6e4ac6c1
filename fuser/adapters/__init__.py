"""Adapters from torch to the compiler: frontends, and the op table that they share."""
