"""Writing an op: the effect of one row of csrc/ir/ops.def, shown on an existing row.

    python examples/a_new_op.py

softsign(x) = x / (1 + |x|) is not a row. Composed as below, it costs no memory traffic. As a row it
would have a name in kernels, an error bound of its own and support in every frontend:

    FUSER_OP(softsign, 1, Float, kFloat, 15, 2.f,             csrc/ir/ops.def
             "$0 / (1.0f + abs_($0))", kNone, kNone)
    "softsign": torch.nn.functional.softsign,                 fuser/ops/reference.py

HACKING.md explains each step in "An op, step by step".
"""

import torch

from fuser import FusionDefinition, _core


def main() -> None:
    row = next(row for row in _core.op_rows() if row.name == "silu")
    print("A row as the compiler sees it:")
    for name in ("name", "arity", "rule", "accepts", "cost", "ulp", "real_text"):
        print(f"  {name:>10}: {getattr(row, name)}")

    fd = FusionDefinition()
    x = fd.define_tensor([-1])
    fd.add_output(x / (fd.ops.abs(x) + 1.0))
    print("\nComposed of rows that are there:\n")
    print(fd)

    data = torch.randn(1000)
    (y,) = fd.validate([data])  # compares with the definition in float64
    torch.testing.assert_close(y, torch.nn.functional.softsign(data))
    print("agrees with torch.nn.functional.softsign")


if __name__ == "__main__":
    main()
