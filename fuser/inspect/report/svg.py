"""Pictures as SVG text. All text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_NAMESPACE = "http://www.w3.org/2000/svg"
CHARACTER = 6.7  # pixels per character at 11 px, monospaced


def element(name: str, content: str = "", **attributes: object) -> str:
    """`<name a="..">content</name>`; attribute names have _ for -, and a trailing _ is dropped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def text(x: float, y: float, what: str, class_: str = "", anchor: str = "start") -> str:
    """A line of text, escaped."""
    return element("text", escape(what), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def tooltip(what: str) -> str:
    """Tooltip of a shape; must be its first child."""
    return element("title", escape(what))


_LEAST = 0.8  # minimum scale of a picture: text of 11 px is readable at 9 px


def picture(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """A complete picture. It shrinks to the width of the page while its text stays readable; below
    that the page scrolls.
    """
    body = tooltip(title) + "".join(parts)
    size = {"width": round(width), "height": round(height)}
    box = f"0 0 {size['width']} {size['height']}"
    least = f"min-width: {round(_LEAST * width)}px"
    return element("svg", body, xmlns=_NAMESPACE, viewBox=box, role="img", style=least, **size)


def shortened(what: str, width: float) -> str:
    """Shortens a text to a width in pixels."""
    most = max(4, int(width / CHARACTER))
    return what if len(what) <= most else what[: most - 1] + "…"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
