"""csrc/ir/tokens: words, lines and columns, tested through the errors of parse_kernel()."""

import pytest

from fuser import _core
from fuser.errors import UserError

HEAD = "kernel k threads 32 min_blocks 0 index 32 {\n"


def error_of(text: str) -> str:
    with pytest.raises(UserError) as caught:
        _core.parse_kernel(text)
    assert caught.value.rule == "parse-1"
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'kernel', got the end of the text"),
        ("\n\n  kernal", "line 3, column 3: expected 'kernel', got 'kernal'"),
        ("kernel k\n", "line 1, column 9: expected 'threads', got the end of the line"),
        (HEAD + "  v0 = $\n}\n", "line 2, column 8: expected an expression, got '$'"),
        (HEAD, "line 2, column 1: expected a statement, got the end of the text"),
        ("# only a comment", "line 1, column 17: expected 'kernel', got the end of the text"),
        (HEAD + "\tv0 = 1\n}\n", "line 2, column 1: expected a statement, got '\t'"),
    ],
)
def test_where_and_what(text: str, message: str) -> None:
    assert error_of(text) == f"kernel text, {message}"


def test_blanks_and_comments_do_not_count() -> None:
    text = (
        "# before\n\n" + HEAD + "\n  # inside\n  v0   =  block*32+thread # behind\n\n}\n# after\n"
    )
    assert _core.parse_kernel(text).text() == HEAD + "  v0 = block * 32 + thread\n}\n"


def test_no_line_end_is_needed_at_the_end() -> None:
    assert _core.parse_kernel(HEAD + "  barrier\n}").statements() == ["barrier"]


@pytest.mark.parametrize("number", ["1.5.2:f32", "0x10:f32", "1e400:f32", "1f:f32"])
def test_bad_floats(number: str) -> None:
    assert "expected a number" in error_of(HEAD + f"  v0 : f32 = {number}\n}}\n")


@pytest.mark.parametrize("bits", ["0x7ff0000000000000", "7ff8000000000001", "0x1", "0xg", "nan"])
def test_bad_nan(bits: str) -> None:
    message = error_of(HEAD + f"  v0 : f32 = nan({bits}):f32\n}}\n")
    assert "line 2, column 18: expected the bits of a float64 NaN" in message


@pytest.mark.parametrize("name", ["v", "v01", "v-1", "v2147483647", "v99999999999", "w0"])
def test_bad_names_of_variables(name: str) -> None:
    assert "line 2, column 3: expected a statement" in error_of(HEAD + f"  {name} = 1\n}}\n")


@pytest.mark.parametrize("threads", ["-1", "1.5", "99999999999", "many"])
def test_bad_integers(threads: str) -> None:
    message = error_of(HEAD.replace("32 min", f"{threads} min"))
    assert "column 18: expected the number of threads per block" in message
