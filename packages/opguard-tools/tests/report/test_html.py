from __future__ import annotations

from html.parser import HTMLParser

import pytest

from opguard.tools.compare import Comparison
from opguard.tools.report import document
from opguard.tools.report.html import render_html

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags nest, and collects what a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def page(comparison: Comparison) -> Page:
    return Page(render_html(comparison, document(comparison) | {"reports": {"perfetto": []}}))


def test_page_is_well_formed_and_loads_nothing(differing: Comparison) -> None:
    found = page(differing)

    assert found.open == []
    assert not found.names() & {"script", "link", "img", "iframe", "object", "embed"}
    assert not any(name in attrs for _, attrs in found.tags for name in ("src", "href"))
    assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
    assert "url(" not in "".join(found.text)


def test_text_of_the_workload_is_escaped(differing: Comparison) -> None:
    callee = differing.baseline.sites[1].callee

    found = page(differing)

    assert any(callee in text for text in found.text)
    assert "<script" not in render_html(
        differing, document(differing) | {"reports": {"perfetto": []}}
    )


@pytest.mark.requirement("E3")
def test_header_gives_no_verdict_and_the_plain_statement(equal: Comparison) -> None:
    text = " ".join(page(equal).text)

    assert "verdict: not_evaluated" in text
    assert "not a numerical-equivalence result and not a root-cause finding" in text
    assert "No difference" in text


def test_the_line_of_the_call_is_marked_on_both_sides(differing: Comparison) -> None:
    found = page(differing)

    marked = [
        attrs for tag, attrs in found.tags if tag == "span" and attrs.get("class") == "row hit"
    ]
    assert len(marked) == 2


def test_every_region_is_shown_with_its_bytes(differing: Comparison) -> None:
    found = page(differing)

    titles = [attrs["title"] for tag, attrs in found.tags if tag == "i"]
    assert titles == [f"region {n}: bytes {16 * n} to {16 * (n + 1)} differ" for n in range(4)]


def test_incomplete_capture_is_shown(cut: Comparison) -> None:
    found = page(cut)

    text = "".join(found.text)
    assert "Only the candidate did not end with success" in text
    assert "Nothing past the end of either side is called equal." in text
    assert "script" not in found.names()
