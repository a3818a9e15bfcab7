"""A matplotlib figure as a part of an HTML page.

Styles become attributes and colours become classes, so that the page can forbid inline styles and
choose the colours itself, light or dark. Identifiers get a prefix that is unique to the picture.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from noisin.experiments.pictures.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {colour: name for name, colour in LIGHT.items()}
_KEPT = {"viewBox"}  # of the root element: the page decides on the size
_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def inline(figure: Figure, name: str, label: str) -> str:
    """The picture as an ``<svg>`` element.

    Args:
        figure: the figure, drawn in the light colours of the palette.
        name: a name that is unique in the page.
        label: a description for screen readers.
    """
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "noisin"}):
        figure.savefig(text, format="svg", metadata=_METADATA, transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    root.attrib = {key: value for key, value in root.attrib.items() if key in _KEPT}
    root.attrib |= {"role": "img", "aria-label": label}
    for element in root.iter():
        _clean(element, name)
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, name: str) -> None:
    element.tag = element.tag.rpartition("}")[2]
    for child in [child for child in element if child.tag.endswith("}style")]:
        element.remove(child)  # it would apply to the whole page
    element.text = element.text and element.text.strip()
    element.tail = None
    attributes = _attributes(element.attrib.pop("style", ""))
    for key, value in element.attrib.items():
        attributes[key.rpartition("}")[2]] = value
    if "id" in attributes:
        attributes["id"] = f"{name}-{attributes['id']}"
    if "href" in attributes:
        attributes["href"] = f"#{name}-{attributes['href'].removeprefix('#')}"
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("#", f"#{name}-")
    for key in ("d", "x", "y", "transform"):
        if key in attributes:
            attributes[key] = _shorter(attributes[key])
    element.attrib = attributes


def _attributes(style: str) -> dict[str, str]:
    """The parts of a style as attributes, and the colours as classes.

    >>> _attributes("fill: none; stroke: #1c2128; stroke-width: 2")
    {'fill': 'none', 'stroke-width': '2', 'class': 'stroke-ink'}
    """
    attributes, classes = {}, []
    for part in filter(None, style.split(";")):
        key, value = (side.strip() for side in part.split(":", 1))
        if key in ("fill", "stroke") and value in _NAMES:
            classes.append(f"{key}-{_NAMES[value]}")
        elif key != "font-family":  # that of the page
            attributes[key] = value
    return attributes | ({"class": " ".join(classes)} if classes else {})


def _shorter(numbers: str) -> str:
    """
    >>> _shorter("M 46.145455 -182.52 \\nL 3 4 \\nz\\n"), _shorter("rotate(-0 1.25 3)")
    ('M46.1 -182.5L3 4z', 'rotate(0 1.2 3)')
    """
    short = re.sub(r"-?\d+\.?\d*", lambda found: _rounded(float(found[0])), numbers)
    return re.sub(r"\s*([MLCQz])\s*", r"\1", short).strip()


def _rounded(value: float) -> str:
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")
