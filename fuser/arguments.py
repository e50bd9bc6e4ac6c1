"""What the methods of fd.ops take: the types of their arguments, and one form for each."""

from collections.abc import Sequence
from typing import Any

from fuser import _core
from fuser._core import DataType, Scalar, Tensor
from fuser.errors import Unsupported, UserError

Number = bool | int | float | complex
Operand = Tensor | Scalar | Number
Size = int | Scalar
Dims = int | Sequence[int] | None


class AbsentType:
    """A type of nvFuser's DataType that fuser lacks: it can be named, and is refused where used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


for _name in ("UInt16", "UInt32", "UInt64", "Float8_e8m0fnu", "Float4_e2m1fn", "Float4_e2m1fn_x2"):
    setattr(DataType, _name, AbsentType(_name))


def as_dtype(dtype: Any) -> DataType:
    """The DataType of a DataType or of a torch.dtype. Raises Unsupported `dtype-absent` for an
    AbsentType, DTypeError `dtype-torch` for a type of torch that fuser lacks.
    """
    if isinstance(dtype, DataType):
        return dtype
    if isinstance(dtype, AbsentType):
        raise Unsupported(
            f"{dtype} is a type that fuser lacks\n  hint: it has {', '.join(DataType.__members__)}",
            rule="dtype-absent",
        )
    return _core.dtype_from_torch(str(dtype).removeprefix("torch."))


def reduced_dims(
    op: str, arg: Tensor, dims: Dims | DataType, dtype: Any = None, dim: int | None = None
) -> tuple[list[int], DataType | None]:
    """The dims that a call reduces, and its dtype: (arg, dtype), (arg, dim, ...) or (arg, dims,
    ...). A tensor of no dims may be reduced over dim 0 or -1, as in torch: nothing happens.

    Raises UserError `reduce-dim-4` for both `dims` and `dim`.
    """
    if dims is not None and dim is not None:
        raise UserError(f"{op}(): got both dims={dims!r} and dim={dim!r}", rule="reduce-dim-4")
    which = dims if dim is None else dim
    if not (which is None or isinstance(which, int | Sequence)):
        which, dtype = None, which if dtype is None else dtype
    if which is None:
        which = range(arg.ndim)
    listed = [which] if isinstance(which, int) else list(which)
    if arg.ndim == 0:
        listed = [d for d in listed if d not in (0, -1)]
    return listed, None if dtype is None else as_dtype(dtype)


def known_number(op: str, name: str, value: Any) -> Any:
    """A number, of a Scalar that is one; others are given back as they are. Raises Unsupported
    `number-1` for a Scalar that only the run knows.
    """
    if not isinstance(value, Scalar):
        return value
    if value.value is None:
        raise Unsupported(
            f"{op}(): {name}: expected a number, got a scalar that only the run knows\n"
            "  hint: a definition for each value",
            rule="number-1",
        )
    return value.value


def count_over(arg: Tensor, dims: Sequence[int]) -> Any:
    """How many elements lie over `dims`: an int64 Scalar, or 1."""
    count: Any = 1
    for d in dims:
        count = arg.size(d) if isinstance(count, int) else count * arg.size(d)
    return count
