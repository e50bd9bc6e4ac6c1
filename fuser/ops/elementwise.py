"""Scalar ops: each row of the op table is one method. Their types are in elementwise.pyi, which
`python -m fuser.ops.stubs` writes.
"""

from fuser.ops.methods import checked_methods
from fuser.ops.op_table import method, method_rows


class Elementwise:
    """Scalar ops, elementwise on tensors."""


for _row in method_rows():
    setattr(Elementwise, _row.name, method(_row))
checked_methods(Elementwise)
