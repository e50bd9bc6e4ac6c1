"""Error types, by who is at fault. Every error has a `rule`: the id of the violated rule in the
documentation, in the code and in a test's name.

C++ has equal types (csrc/base/error.h); they convert in both directions without change.
"""

from typing import Any, Self

__all__ = [
    "ArgumentTypeError",
    "BuildMismatch",
    "CompileError",
    "DTypeError",
    "IndexRangeError",
    "InternalError",
    "LaunchError",
    "ShapeError",
    "Unsupported",
    "UserError",
]


# Rules of C++ errors about values of a wrong Python type.
_TYPE_RULES = frozenset({"argument-type", "library-3", "operand-1"})


class _Ruled(Exception):
    """Base class that holds the rule id."""

    def __init__(self, message: str = "", *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class UserError(_Ruled, ValueError, RuntimeError):
    """The program is wrong: too few inputs, a tensor of another definition, an axis out of range.

    The message names the operands with the lines that defined them, the expected value, and a fix.
    It is also a RuntimeError, like most of torch's errors and all of nvFuser's.
    """

    def __new__(cls, message: str = "", *, rule: str = "") -> Self:
        """Creates an ArgumentTypeError for a rule about Python types, and an IndexRangeError for an
        index, also for errors from C++."""
        wanted: Any = cls
        if cls is UserError and rule in _TYPE_RULES:
            wanted = ArgumentTypeError
        elif cls is UserError and rule == "index-range-1":
            wanted = IndexRangeError
        error: Self = super().__new__(wanted, message)
        return error


class ShapeError(UserError):
    """The program is wrong about shapes: ranks or sizes do not match.

    Compare the shapes in the message; insert a broadcast, a slice or a reshape.
    """


class ArgumentTypeError(UserError, TypeError):
    """The program uses a value of an unsupported Python type, as Python's TypeError: a float for a
    dim, a str for a number, a tensor of a definition in place of a number.

    The message names the value, its expected type and the signature or what to write instead.
    """


class IndexRangeError(UserError, IndexError):
    """An index tensor holds a value out of range, as Python's IndexError.

    CPU kernels check the values that they use. The outputs of the failed run are undefined.
    """


class DTypeError(UserError, TypeError):
    """The program is wrong about element types: the operation or the definition expects another.

    Cast the operand, or define the tensor with the type that is passed.
    """


class Unsupported(_Ruled, NotImplementedError):
    """The program is correct, but this version cannot fuse it, or not on this machine.

    The message lists the reason of each scheduler. Adapters catch only this class and fall back to
    eager.
    """


class CompileError(_Ruled, RuntimeError):
    """The compiler (NVRTC, or the C++ compiler of the host executor) rejected the generated code,
    or is missing.

    A rejection is a bug of fuser: report `log` with the file at `source_path`. `command` repeats
    the compilation by hand. If the compiler is missing, the message says how to install it.
    """

    def __init__(
        self,
        message: str = "",
        *,
        rule: str = "",
        log: str = "",
        source_path: str = "",
        flags: tuple[str, ...] = (),
        command: str = "",
    ) -> None:
        super().__init__(message, rule=rule)
        self.log = log
        self.source_path = source_path
        self.flags = flags
        self.command = command


class LaunchError(_Ruled, RuntimeError):
    """The CUDA driver refused a launch, an earlier kernel of this process failed, or
    fuser.evaluate() ran out of memory.

    The message gives grid, block, shared memory and the device's limits. After an illegal access
    the CUDA context of the process is lost: restart it, and run once with FUSER_HOST_DEBUG=1 on CPU
    tensors to find the access.
    """


class InternalError(_Ruled, AssertionError):
    """A bug of fuser: an invariant of the compiler is broken. Report it with the script that the
    message names.
    """


class BuildMismatch(ImportError):
    """The compiled modules do not fit the imported torch. The message says how to rebuild."""

    def __init__(self, message: str = "", *, rule: str = "build-torch") -> None:
        super().__init__(message)
        self.rule = rule
