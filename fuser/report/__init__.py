"""fuser.report: one HTML file that shows what became of a definition or a model."""

from fuser.report.page import report

__all__ = ["report"]
