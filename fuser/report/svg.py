"""Pictures as SVG text: elements, and the one place where text from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_NAMESPACE = "http://www.w3.org/2000/svg"
CHARACTER = 6.7  # pixels of a character at 11 px, monospaced


def element(name: str, content: str = "", **attributes: object) -> str:
    """`<name a="..">content</name>`; attribute names have _ for -, and a trailing _ is dropped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def text(x: float, y: float, what: str, class_: str = "", anchor: str = "start") -> str:
    """A line of text; `what` may hold anything."""
    return element("text", escape(what), x=x, y=y, class_=class_ or None, text_anchor=anchor)


def tooltip(what: str) -> str:
    """What a shape says when it is pointed at; its first child."""
    return element("title", escape(what))


_LEAST = 0.8  # of a picture's size: text of 11 px is still read at 9


def picture(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """A whole picture. In a page it shrinks to the room there is, as long as its text can be read;
    wider ones the page lets scroll.
    """
    body = tooltip(title) + "".join(parts)
    size = {"width": round(width), "height": round(height)}
    box = f"0 0 {size['width']} {size['height']}"
    least = f"min-width: {round(_LEAST * width)}px"
    return element("svg", body, xmlns=_NAMESPACE, viewBox=box, role="img", style=least, **size)


def shortened(what: str, width: float) -> str:
    """As much of `what` as fits into so many pixels."""
    most = max(4, int(width / CHARACTER))
    return what if len(what) <= most else what[: most - 1] + "…"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
