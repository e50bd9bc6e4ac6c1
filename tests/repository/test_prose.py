"""Comments, docstrings and documents avoid sentences that readers have to decode.

Three kinds are counted per 1,000 words of each folder and document: openers, i.e. sentences that
begin with a pronoun or a free relative clause; the indirect "what"; and pronouns without a noun.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Occurrences allowed per 1,000 words; a single one is allowed in any area.
LIMITS = {"openers": 1.0, "what": 1.0, "pronouns": 2.0}

OPENER = re.compile(r"(?:What|Where|Of|That|Those|Nothing|Such)\b")
# At the start of a sentence the pronoun; elsewhere, and before other words, a value or enumerator.
NONE_OPENER = re.compile(r"None (?:of|are|has|have|can|may|does|do|needs?|that|which|other)\b")
WHAT = re.compile(r"\bwhat\b", re.IGNORECASE)
PRONOUN = re.compile(r"\b(?:[Tt]hose|[Tt]hat of|[Ss]uch|none|[Nn]obody|[Oo]thers)\b")
WORD = re.compile(r"[A-Za-z']+")

# Code in prose: spans, quotations, and words that only identifiers contain.
CODE = re.compile(
    r"``[^`]+``|`[^`]+`|(?<!\w)\"[^\"\n]{1,200}\"|(?<!\w)'[^'\n]{1,60}'(?!\w)"
    r"|[\w.]*(?:::|->)\w*|\w*_\w+|\*+\w+|\b[A-Za-z]+\([^)]*\)"
)

DOCSTRING = re.compile(r'\s*[rR]?("""|")(.*?)\1', re.DOTALL)
PRAGMA = re.compile(r"#!|#\s*(?:noqa|type:|fmt:)")

Line = tuple[int, str]  # number, text
Block = list[Line]  # consecutive lines of one comment, docstring or paragraph


# ---- blocks of prose in files


def python_blocks(text: str) -> Iterator[Block]:
    """Docstrings, and comments; a comment continues on the next line if that line has no code."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is None:
                continue
            quoted = node.body[0]
            source = "\n".join(text.splitlines()[quoted.lineno - 1 : quoted.end_lineno])
            if found := DOCSTRING.match(source):
                yield from paragraphs(list(enumerate(found[2].splitlines(), quoted.lineno)))
    yield from joined(
        [
            (token.start[0], token.string.lstrip("# "), not token.line[: token.start[1]].strip())
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not PRAGMA.match(token.string)
        ]
    )


CPP = re.compile(
    r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/',
    re.DOTALL,
)


def cpp_blocks(text: str) -> Iterator[Block]:
    """Comments of C++; a line comment continues on the next line if that line has no code."""
    comments = []
    for found in CPP.finditer(text):
        start = text.count("\n", 0, found.start()) + 1
        own = not text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip()
        if found[0].startswith("//"):
            comments.append((start, found[0].lstrip("/ "), own))
        elif found[0].startswith("/*"):
            for i, line in enumerate(found[0][2:-2].splitlines()):
                comments.append((start + i, line.strip(" *"), own or i > 0))
    yield from joined(comments)


def markdown_blocks(text: str) -> Iterator[Block]:
    """Paragraphs, headings, list items and table cells, without code blocks."""
    fenced = False
    block: Block = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            line = ""
        is_code = line.startswith("    ") and not block
        if fenced or is_code or not line.strip():
            yield from [block] if block else []
            block = []
            continue
        line = re.sub(r"\]\([^)]*\)|<[^>]+>", "", line)
        cells = line.split("|") if line.lstrip().startswith("|") else [line]
        for cell in cells:
            item = re.match(r"\s*(?:[-*+]|\d+\.|#+|>)\s+", cell)
            if block and (item or len(cells) > 1):
                yield block
                block = []
            if cell.strip():
                block.append((number, cell[item.end() :] if item else cell.strip()))
    if block:
        yield block


def joined(comments: list[tuple[int, str, bool]]) -> Iterator[Block]:
    """Blocks of consecutive comments (line, text, True if the line has no code)."""
    block: Block = []
    for number, line, own in comments:
        if block and not (own and number == block[-1][0] + 1):
            yield from paragraphs(block)
            block = []
        block.append((number, line))
    yield from paragraphs(block)


def paragraphs(lines: Block) -> Iterator[Block]:
    """The lines, divided at blank ones."""
    block: Block = []
    for number, line in lines:
        if line.strip():
            block.append((number, line.strip()))
        elif block:
            yield block
            block = []
    if block:
        yield block


# ---- counting


@dataclass
class Count:
    """Words of prose, and the sentences (place, sentence) with a hit, by kind."""

    words: int = 0
    hits: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {k: [] for k in LIMITS})

    def add(self, path: str, blocks: Iterator[Block]) -> None:
        for block in blocks:
            self.words += sum(len(WORD.findall(line)) for _, line in block)
            for number, sentence in sentences(block):
                clean = CODE.sub("X", sentence)
                for kind, times in found_in(clean).items():
                    self.hits[kind] += [(f"{path}:{number}", sentence)] * times

    def report(self, kind: str) -> str:
        """Message about too many hits of a kind, or an empty string."""
        found = self.hits[kind]
        if len(found) <= max(1.0, LIMITS[kind] * self.words / 1000):
            return ""
        places = sorted(set(found), key=lambda hit: (-found.count(hit), hit))
        listed = "\n".join(f"  {place}: {sentence}" for place, sentence in places[:25])
        rate = 1000 * len(found) / self.words
        return f"{kind}: {rate:.1f} per 1,000 words, expected at most {LIMITS[kind]}\n{listed}"


def sentences(block: Block) -> Iterator[Line]:
    """The sentences of a block, and the line on which each begins."""
    text, numbers = "", []
    for number, line in block:
        text += line + " "
        numbers += [number] * (len(line) + 1)
    start = 0
    for end in [m.end() for m in re.finditer(r"(?<!e\.g)(?<!i\.e)[.:;!?]['\")]*\s+", text)]:
        yield numbers[start], text[start:end].strip()
        start = end
    if text[start:].strip():
        yield numbers[start], text[start:].strip()


def found_in(sentence: str) -> dict[str, int]:
    """Number of hits of each kind in a sentence without code; direct questions are no hits."""
    if re.match(r"(?:What|Where)\b.*\?$", sentence):
        return {}
    opener = OPENER.match(sentence) or NONE_OPENER.match(sentence)
    return {
        "openers": int(opener is not None),
        "what": len(WHAT.findall(sentence)),
        "pronouns": len(PRONOUN.findall(sentence)),
    }


# ---- the repository

READERS = {
    ".py": python_blocks,
    ".h": cpp_blocks,
    ".cpp": cpp_blocks,
    ".def": cpp_blocks,
    ".md": markdown_blocks,
}


def areas() -> dict[str, list[Path]]:
    """The files of each folder that is counted by itself, and of each document."""
    found: dict[str, list[Path]] = {}
    for folder in sorted((ROOT / "csrc").iterdir()):
        if folder.is_dir() and folder.name != "device":
            files = [p for p in folder.rglob("*") if p.suffix in (".h", ".cpp", ".def")]
            found[f"csrc/{folder.name}"] = files
    adapters = set((ROOT / "fuser" / "adapters").rglob("*.py"))
    found["fuser"] = [p for p in (ROOT / "fuser").rglob("*.py") if p not in adapters]
    found["fuser/adapters"] = list(adapters)
    for name in ("tests", "benchmarks", "examples"):
        found[name] = list((ROOT / name).rglob("*.py"))
    found["setup.py"] = [ROOT / "setup.py"]
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    documents += [ROOT / folder / "README.md" for folder in ("benchmarks", "examples")]
    for path in sorted(documents):
        found[path.relative_to(ROOT).as_posix()] = [path]
    return found


@pytest.mark.parametrize(("area", "files"), areas().items(), ids=list(areas()))
def test_prose_is_plain(area: str, files: list[Path]) -> None:
    count = Count()
    for path in sorted(files):
        text = path.read_text(encoding="utf-8")
        count.add(path.relative_to(ROOT).as_posix(), READERS[path.suffix](text))
    assert count.words > 10, "the scan finds prose"
    problems = [message for kind in LIMITS if (message := count.report(kind))]
    assert not problems, f"{area}: {count.words} words\n" + "\n".join(problems)


# ---- the counter itself


def hits(name: str, text: str) -> dict[str, list[str]]:
    """Places with hits in a text, by kind, without kinds that have none."""
    count = Count()
    count.add(name, READERS[Path(name).suffix](text))
    found = {kind: [place for place, _ in places] for kind, places in count.hits.items()}
    return {kind: places for kind, places in found.items() if places}


@pytest.mark.parametrize(
    ("sentence", "kinds"),
    [
        ("What a kernel stores.", ["openers", "what"]),
        ("Stores a row. Where it lies is known.", ["openers"]),
        ("Of a thread, by lane.", ["openers"]),
        ("Reads a tensor: that of the first call.", ["pronouns"]),
        ("That takes a barrier.", ["openers"]),
        ("Those are dead.", ["openers", "pronouns"]),
        ("Nothing is stored.", ["openers"]),
        ("None of the loads is masked.", ["openers"]),
        ("Such loads are masked; nobody reads others.", ["openers", "pronouns"]),
        ("Copies what the kernel stores.", ["what"]),
        ("What is a phase?", []),
        ("Where is a value stored?", []),
        ("The kernel that stores the tensor. It has none of these.", ["pronouns"]),
        ("None: symbolic sizes.", []),
        ("None if there is no plan.", []),
        ("The plan, or None. Fission::None leaves the kernel whole.", []),
        ("Selects a mode: None, Split or TransposeOperands.", []),
        ("Offset of the first element. The whereabouts are somewhat open.", []),
        ("`what` is a name, and \"those rows\" a quotation, like 'none'.", []),
        ("Calls where(a, b) and mode.none_such with *others.", []),
    ],
)
def test_kinds_of_a_sentence(sentence: str, kinds: list[str]) -> None:
    """Each kind is found in comments, docstrings and documents, and code in prose is ignored."""
    docstring = f'r"""{sentence}"""' if '"' not in sentence else f"# {sentence}"
    for name, text in (
        ("a.py", f"# {sentence}\nx = 1\n"),
        ("b.py", docstring + "\n"),
        ("c.h", f"// {sentence}\nint x;\n"),
        ("d.cpp", f"int x; /* {sentence} */\n"),
        ("e.md", f"{sentence}\n"),
        ("f.md", f"| {sentence} | x |\n|---|---|\n"),
    ):
        assert sorted(hits(name, text)) == sorted(kinds), name


def test_places_are_lines() -> None:
    """A hit is at the line on which its sentence begins."""
    text = (
        '"""Title.\n\nText of a\nmodule. What it\nholds."""\n\nx = 1  # those\n# a, b\ny = "what"\n'
    )
    assert hits("a.py", text) == {
        "openers": ["a.py:4"],
        "what": ["a.py:4"],
        "pronouns": ["a.py:7"],
    }
    assert hits("a.cpp", 'f("// what");  // one\n// two. Of\nint x;  // what\n') == {
        "openers": ["a.cpp:2"],
        "what": ["a.cpp:3"],
    }
    text = "# Title\n\n- one\n- what\n  two\n\n```\nwhat\n```\n\n    those\n\nSuch.\n"
    assert hits("a.md", text) == {
        "openers": ["a.md:13"],
        "what": ["a.md:4"],
        "pronouns": ["a.md:13"],
    }


def test_code_is_no_prose() -> None:
    """Strings, raw strings and pragmas are not counted."""
    assert hits("a.py", 's = "what"  # noqa: what\nt = """\n# What\n"""\n') == {}
    assert hits("a.h", 'auto s = R"(// what)";\nchar c = \'"\';  // a quote\n') == {}


def test_a_rate_above_its_limit_is_reported() -> None:
    """The limit is a rate per 1,000 words; a single occurrence is below it in any area."""
    plain = "# one two three four five six seven eight nine ten\n" * 100
    for counted, thousands, fails in ((1, 0, False), (2, 0, True), (2, 1, True), (2, 2, False)):
        count = Count()
        text = "x = 1\n# Copies what it reads.\n" * counted + plain * thousands
        count.add("a.py", python_blocks(text))
        assert ("a.py:2: Copies what it reads." in count.report("what")) is fails
        assert not count.report("openers")
