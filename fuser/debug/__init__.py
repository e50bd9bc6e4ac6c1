"""Definitions checked: evaluation in float64, comparison, scripts that repeat an error."""
