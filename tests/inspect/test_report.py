"""fuser.report: the page is complete and escaped, and a browser shows it."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import fuser
from fuser import FusionDefinition, _core
from fuser.inspect.report import graph, plots, svg
from fuser.inspect.report.kernels import machine_code
from fuser.inspect.report.source import source_lines

X, Y = torch.randn(8, 16), torch.randn(16, 16)


def definition() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = fd.define_tensor([-1, -1])
        rows = fd.ops.softmax(fd.ops.softmax(x, 0), 1)  # a <b>line</b> & more
        fd.add_output(fd.ops.relu(fd.ops.matmul(rows, y)))
    return fd


class Page(HTMLParser):
    """The ids, links and unclosed tags of a page."""

    VOID = frozenset({"meta", "br", "wbr", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []  # type: ignore[list-item]
        self.links += [given["href"]] if given.get("href") else []  # type: ignore[list-item]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuser.report(definition(), X, Y, path=tmp_path_factory.mktemp("report") / "r.html")


def test_it_is_one_file_with_all_sections(page: Path) -> None:
    text = page.read_text()
    parsed = Page(text)
    assert parsed.open == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert {link.removeprefix("#") for link in parsed.links} <= set(parsed.ids)
    sections = {"graph", "steps", "cuts", "roofline", "timeline", "kernels", "definition"}
    assert sections <= set(parsed.ids)
    assert not re.search(r"(src|href)=\"?(https?:)?//|@import|url\(http", text)
    assert "KERNEL(" in text
    assert "materialized for" in text
    assert "registers per thread" in text
    assert "torch computes matmul" in text


def test_report_path(tmp_path: Path) -> None:
    with pytest.raises(fuser.UserError, match="does not exist") as error:
        fuser.report(definition(), X, Y, path=tmp_path / "absent" / "r.html")
    assert error.value.rule == "report-path"


def test_what_users_write_is_escaped(page: Path) -> None:
    text = page.read_text()
    assert "a &lt;b&gt;line&lt;/b&gt; &amp; more" in text
    assert "<b>line</b>" not in text
    assert svg.text(0, 0, "<script>").count("<script>") == 0
    assert "&quot;" in svg.element("rect", class_='"')


def test_a_model_has_a_section_for_each_region(tmp_path: Path) -> None:
    def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ((x * 2).relu() @ y).sin().cos()

    text = fuser.report(block, X, Y, path=tmp_path / "m.html", measured=False).read_text()
    parsed = Page(text)
    assert {"r0", "r1", "r0-graph", "r1-graph"} <= set(parsed.ids)
    assert "2 different regions" in text
    assert "aten.mm.default" in text
    assert "return ((x * 2).relu() @ y).sin().cos()" in text, "the line of the model"


def test_a_long_chain_is_drawn_from_both_ends() -> None:
    fd = FusionDefinition()
    x = y = fd.define_tensor([-1])
    for _ in range(200):
        y = fd.ops.sin(y)
    fd.add_output(y)
    found = fuser.explain(fd, X[0])
    picture = graph.graph(fd.fusion.records()["tensors"], found, {})
    assert "164 more ops" in picture
    assert picture.count('class="node op"') == 36
    assert x.id == 0


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    pattern = r'<rect x="([\d.-]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.]+)" rx="\d+" '
    found = re.findall(pattern + r'class="node', picture)
    return [tuple(map(float, row)) for row in found]  # type: ignore[misc]


def test_boxes_do_not_overlap() -> None:
    fd = FusionDefinition()
    tensors = [fd.define_tensor([-1, -1]) for _ in range(12)]
    total = fd.ops.layer_norm(tensors[0], [16])[0]
    for t in tensors[1:]:
        total = total + fd.ops.gelu(t) * fd.ops.sum(t, 1, keepdim=True)
    fd.add_output(total)
    found = fuser.explain(fd, [X] * 12)
    pictures = graph.graph(fd.fusion.records()["tensors"], found, {}).split("<g ")[1:]
    assert len(pictures) == len(found.steps)
    for picture in pictures:
        placed = boxes(picture)
        assert len(placed) > 3
        for i, (x, y, w, h) in enumerate(placed):
            for u, v, s, t in placed[i + 1 :]:
                assert x + w <= u or u + s <= x or y + h <= v or v + t <= y


def test_lines_are_found_again() -> None:
    fd = definition()
    found = fuser.explain(fd, X, Y)
    lines = source_lines(fd.fusion.records()["tensors"], found.steps[0].computes, {})
    assert [line.file for line in lines] == ["test_report.py"]
    assert "rows = fd.ops.softmax" in lines[0].code
    assert any(op == "exp" for _, op in lines[0].ops)


def test_machine_code_is_counted() -> None:
    fd = FusionDefinition()
    x = fd.define_tensor([-1, -1], contiguity=True)
    fd.add_output(fd.ops.exp(x))
    (kernel,) = fd.fec.executor.kernels([X])
    code = machine_code(kernel, 80)
    assert code.registers > 0
    assert code.local_bytes == 0
    assert code.instructions["loads"] > 0
    assert code.instructions["transcendental"] >= 4
    assert code.instructions["stores"] > 0


def test_a_kernel_that_does_not_compile_is_said() -> None:
    class Broken:
        name, text, isa = "broken", "no C at all", ""

    assert "broken" in machine_code(Broken(), 80).missing


def test_machine_code_of_a_cpu_kernel_is_counted() -> None:
    class Doubled:
        name, isa = "doubled", str(_core.native_device().isa)
        text = """
        typedef float Lanes __attribute__((vector_size(16), aligned(4), may_alias));
        static void doubled(const float* x, float* y, long long begin, long long end) {
          for (long long t = begin; t < end; ++t)
            *(Lanes*)(y + 4 * t) = *(const Lanes*)(x + 4 * t) * 2.0f;
        }"""

    code = machine_code(Doubled(), 80)
    assert code.target == Doubled.isa
    assert code.instructions["vectors of 128 bits"] >= 2
    assert code.instructions["control"] >= 2
    assert "doubled" in code.sass
    Doubled.text = "static void doubled(long long begin, long long end) { missing(); }"
    assert "missing" in machine_code(Doubled(), 80).missing


def test_plots_take_empty_input() -> None:
    machine = fuser.explain(definition(), X, Y).machine
    assert "<svg" in plots.roofline(machine, [])
    assert "<svg" in plots.timeline([])


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


# Texts that overflow the preceding box, or their SVG.
CUT = """() => {
  const out = [];
  for (const svg of document.querySelectorAll("svg")) {
    const whole = svg.getBoundingClientRect();
    let box = whole;
    if (whole.width === 0) continue;  // in a part that is closed
    for (const e of svg.querySelectorAll("rect, text")) {
      const r = e.getBoundingClientRect();
      if (e.tagName === "rect") { box = e.classList.contains("node") ? r : whole; continue; }
      if (r.left < box.left || r.right > box.right || r.top < whole.top || r.bottom > whole.bottom)
        out.push(e.textContent);
    }
  }
  return out;
}"""


@pytest.fixture(scope="module")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two regions, the second with a long name."""

    def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = (x * 2).relu() @ y
        return torch.layer_norm(torch.nn.functional.gelu(z.softmax(0)).sigmoid(), [16]).log_softmax(
            -1
        )

    path = tmp_path_factory.mktemp("model") / "m.html"
    return fuser.report(block, X, Y, path=path)


@pytest.mark.parametrize(
    ("kind", "width", "scheme"),
    [("page", 390, "dark"), ("page", 1280, "light"), ("model_page", 390, "light")],
)
def test_in_a_browser(
    kind: str, width: int, scheme: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Contents fit into the window and their boxes, no resources are loaded, every section opens by
    a click, every link has a visible target."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if BROWSER is None:
        pytest.skip("no Chromium on the PATH")
    page: Path = request.getfixturevalue(kind)
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        loaded: list[str] = []
        tab.on("request", lambda request: loaded.append(request.url))
        tab.goto(page.as_uri())
        assert loaded == [page.as_uri()]
        for link in tab.query_selector_all('a[href^="#"]'):
            if not link.is_visible():
                continue
            link.click()
            anchor = str(link.get_attribute("href"))
            assert tab.url.endswith(anchor)
            assert tab.query_selector(anchor).is_visible(), "following it opens what it is in"
        for summary in tab.query_selector_all("summary"):
            if summary.evaluate("e => e.parentElement.open"):
                continue
            summary.scroll_into_view_if_needed()
            summary.click()
            assert summary.evaluate("e => e.parentElement.open")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(CUT) == []
        shot = tab.screenshot(path=str(tmp_path / f"{scheme}.png"))
        assert len(shot) > 10_000
        for summary in reversed(tab.query_selector_all("summary")):
            summary.click()
            assert not summary.evaluate("e => e.parentElement.open")
        browser.close()
