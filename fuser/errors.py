"""What can go wrong, by whose fault it is. Every error carries `rule`, the id under which the
broken law stands in the documentation, in the code and in a test's name.

The same kinds exist in C++ (csrc/base/error.h); they cross the border in both directions unchanged.
"""

from typing import Any, Self

__all__ = [
    "ArgumentTypeError",
    "BuildMismatch",
    "CompileError",
    "DTypeError",
    "InternalError",
    "LaunchError",
    "ShapeError",
    "Unsupported",
    "UserError",
]


# Rules that C++ raises for a value of a wrong Python type.
_TYPE_RULES = frozenset({"argument-type", "library-3", "operand-1"})


class _Ruled(Exception):
    """Carries the rule id; mixed into each class below."""

    def __init__(self, message: str = "", *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class UserError(_Ruled, ValueError, RuntimeError):
    """The program is wrong: too few inputs, a tensor of another definition, an axis out of range.

    The message names the operands with the lines that defined them, says what was expected, and how
    to mend it. A RuntimeError too, as most of torch's and all of nvFuser's are.
    """

    def __new__(cls, message: str = "", *, rule: str = "") -> Self:
        """Raised under a rule about Python types it is an ArgumentTypeError, also from C++."""
        wanted: Any = ArgumentTypeError if cls is UserError and rule in _TYPE_RULES else cls
        error: Self = super().__new__(wanted, message)
        return error


class ShapeError(UserError):
    """The program is wrong about shapes: ranks or sizes that do not fit together.

    Compare the shapes in the message; insert a broadcast, a slice or a reshape where they should
    agree.
    """


class ArgumentTypeError(UserError, TypeError):
    """The program passes an argument of a Python type that the function does not take: a float for
    a dim, a str for a number.

    The message names the argument, what is expected there and how the function is called.
    """


class DTypeError(UserError, TypeError):
    """The program is wrong about element types: the operation or the definition wants another.

    Cast the operand, or define the tensor with the type that is passed.
    """


class Unsupported(_Ruled, NotImplementedError):
    """The program is right, but cannot be fused on this machine, or by any scheduler so far.

    The message lists each scheduler's reason. Adapters catch this class, and only this one, and
    fall back to eager.
    """


class CompileError(_Ruled, RuntimeError):
    """The compiler (NVRTC, or the C++ compiler of the host executor) refused the generated text, or
    is missing.

    When it refused, this is a bug of fuser: report `log` with the file at `source_path`. `command`
    repeats the compilation by hand. When it is missing, the message says what to install.
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
    """The CUDA driver refused a launch, an earlier kernel of this process failed, or memory that
    fuser.evaluate() wants is not there.

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
