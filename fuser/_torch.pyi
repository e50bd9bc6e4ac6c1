# at::Tensor <-> the driver, by intention untyped: see _core.pyi.
from typing import Any

def __getattr__(name: str) -> Any: ...
