"""Inspecting the compiler: fuser.explain in the terminal, fuser.report as a page.

    python examples/reading_a_report.py [FILE.html]

Softmax along the columns and then along the rows needs two kernels: each depends on all results of
the other. The report shows the fusion break and its cost.
"""

import sys
import tempfile
from pathlib import Path

import torch

import fuser
from fuser import FusionDefinition


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        columns = fd.ops.softmax(x, 0)
        fd.add_output(fd.ops.softmax(columns, 1))
    data = torch.randn((8192, 4096) if device == "cuda" else (128, 256), device=device)

    # Each line of the table is one launch: the tensors that it reads and writes, the bytes, and the
    # predicted time of moving them. Below follow the plan, the total compared with the ideal (each
    # input read once, each result written once), and the reason for every fusion break.
    found = fuser.explain(fd, data, measured=True)
    print(found)
    assert len(found.steps) == 2

    # As values, for a test that asserts the number of kernels:
    print(f"\n{len(found.steps)} steps move {found.bytes / found.ideal_bytes:.2f} times the ideal")
    print(f"why: {found.apart[0][1]}")

    folder = Path(tempfile.mkdtemp(prefix="fuser-report-"))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "report.html"
    print(f"\nThe same with pictures, CUDA C and machine code: {fuser.report(fd, data, path=path)}")


if __name__ == "__main__":
    main()
