# at::Tensor <-> the driver, deliberately untyped: see _core.pyi.
from typing import Any

def __getattr__(name: str) -> Any: ...
