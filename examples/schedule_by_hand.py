"""A softmax scheduled by hand, as in programs for nvFuser, and the plan that its kernel follows.

    python examples/schedule_by_hand.py

Primitives change the loop nest of each tensor. The kernel follows them where its plan has a
counterpart; values never change.
"""

import torch

from fuser import FusionDefinition, MemoryType, ParallelType, schedule

THREADS, VECTOR = 128, 4


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(256, 2048, device=device)

    with FusionDefinition() as fd:
        t0 = fd.define_tensor([-1, -1], contiguity=True)
        largest = fd.ops.broadcast(fd.ops.max(t0, [1]), [False, True])
        exp = fd.ops.exp(t0 - largest)
        total = fd.ops.broadcast(fd.ops.sum(exp, [1]), [False, True])
        y = exp / total
        fd.add_output(y)

        # Read the row once into shared memory, write the result through registers.
        row = t0.cache_after()
        row.set_memory_type(MemoryType.shared)
        y.cache_before()

        # Split each row into steps of the threads of a block, and the steps into vectors.
        y.split(1, THREADS * VECTOR).split(2, VECTOR)
        schedule.transform_like(y)
        for tensor in filter(fd.sched.is_reduction, fd.sched.tensors()):
            tensor.rfactor([-1])  # each thread reduces its vectors first

        # Bind rows to blocks, and vectors of a row to threads.
        y.axis(0).parallelize(ParallelType.grid_x)
        y.axis(2).parallelize(ParallelType.block_x)
        schedule.parallelize_like(y)
        row.axis(-1).parallelize(ParallelType.vectorize)
        y.axis(-1).parallelize(ParallelType.vectorize)
        schedule.inline_most()

    (result,) = fd.manual_execute([x])
    print("Tensors with their loop nests:\n")
    for tensor in fd.sched.tensors():
        print(f"  {tensor}")
    print(f"\nFields of the plan that follow, and primitives that do not:\n\n{fd.ke.report}\n")
    error = (result - torch.softmax(x.double(), 1)).abs().max()
    print(f"Largest error against float64: {error:.1e}")


if __name__ == "__main__":
    main()
