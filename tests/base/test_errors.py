"""csrc/base/error.h, csrc/bind/error.cpp, fuser/errors.py: each kind of fault maps to one class, in
both directions."""

import pickle

import pytest

from fuser import _core_testing, errors

KINDS = [
    ("User", errors.UserError, ValueError),
    ("Shape", errors.ShapeError, errors.UserError),
    ("DType", errors.DTypeError, errors.UserError),
    ("Unsupported", errors.Unsupported, NotImplementedError),
    ("Compile", errors.CompileError, RuntimeError),
    ("Launch", errors.LaunchError, RuntimeError),
    ("Internal", errors.InternalError, AssertionError),
]


def test_every_kind_has_a_class() -> None:
    assert set(_core_testing.error.FaultKind.__members__) == {kind for kind, _, _ in KINDS}
    for _, error, base in KINDS:
        assert issubclass(error, base)
        assert error.__doc__


def test_a_wrong_program_is_a_runtime_error_as_in_torch() -> None:
    with pytest.raises(RuntimeError, match="ranks"):
        _core_testing.error.raise_fault(_core_testing.error.FaultKind.Shape, "rule-6", "ranks")


@pytest.mark.parametrize(("kind", "error", "base"), KINDS)
def test_raised_in_cpp_is_the_python_class(kind: str, error: type, base: type) -> None:
    with pytest.raises(base) as caught:
        _core_testing.error.raise_fault(
            getattr(_core_testing.error.FaultKind, kind), "rule-7", "add(t0, t1): what is wrong"
        )
    assert type(caught.value) is error
    assert str(caught.value) == "add(t0, t1): what is wrong"
    assert caught.value.rule == "rule-7"


@pytest.mark.parametrize(("kind", "error", "base"), KINDS)
def test_raised_in_a_callback_travels_back_unchanged(kind: str, error: type, base: type) -> None:
    thrown = error("from Python", rule="rule-8")

    def callback() -> None:
        raise thrown

    with pytest.raises(base) as caught:
        _core_testing.error.call(callback)
    assert caught.value is thrown


@pytest.mark.parametrize(("kind", "error", "base"), KINDS)
def test_cpp_to_python_to_cpp_to_python(kind: str, error: type, base: type) -> None:
    def callback() -> None:
        _core_testing.error.raise_fault(
            getattr(_core_testing.error.FaultKind, kind), "rule-9", "deep"
        )

    with pytest.raises(base) as caught:
        _core_testing.error.call(lambda: _core_testing.error.call(callback))
    assert type(caught.value) is error
    assert caught.value.rule == "rule-9"


def test_foreign_exceptions_pass_too() -> None:
    with pytest.raises(ZeroDivisionError):
        _core_testing.error.call(lambda: 1 // 0)


def test_compile_error_carries_what_repeats_it() -> None:
    error = errors.CompileError(
        "refused",
        rule="nvrtc",
        log="line 3: no",
        source_path="k.cu",
        flags=("-O3",),
        command="cc k.cu",
    )
    assert (error.log, error.source_path, error.flags, error.command) == (
        "line 3: no",
        "k.cu",
        ("-O3",),
        "cc k.cu",
    )


def test_errors_survive_a_process_border() -> None:
    for error in (errors.ShapeError("a", rule="r"), errors.CompileError("b", rule="s", log="t")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), vars(copy)) == (str(error), vars(error))
