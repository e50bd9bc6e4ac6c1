// Where a thread is, barriers and shared memory. The host twins are members of HostThread
// (host_cuda.h), inside which the kernel text is pasted.

//@ thread_x thread_y thread_z
#ifndef FUSER_HOST
DEVICE i32 thread_x() { return (i32)threadIdx.x; }
DEVICE i32 thread_y() { return (i32)threadIdx.y; }
DEVICE i32 thread_z() { return (i32)threadIdx.z; }
#endif

//@ block_x block_y block_z
#ifndef FUSER_HOST
DEVICE i32 block_x() { return (i32)blockIdx.x; }
DEVICE i32 block_y() { return (i32)blockIdx.y; }
DEVICE i32 block_z() { return (i32)blockIdx.z; }
#endif

//@ PARTS
// An argument that is read where the launch put it, never copied.
#ifdef FUSER_HOST
#define PARTS const
#else
#define PARTS const __grid_constant__
#endif

//@ part_at_
// The last of `count` parts that starts at or before this block.
DEVICE i32 part_at_(const i32* first, i32 count) {
  i32 low = 0, high = count;
  while (high - low > 1) {
    const i32 middle = (low + high) / 2;
    if (first[middle] <= block_x())
      low = middle;
    else
      high = middle;
  }
  return low;
}

//@ block_dim_x block_dim_y block_dim_z
#ifndef FUSER_HOST
DEVICE i32 block_dim_x() { return (i32)blockDim.x; }
DEVICE i32 block_dim_y() { return (i32)blockDim.y; }
DEVICE i32 block_dim_z() { return (i32)blockDim.z; }
#endif

//@ grid_dim_x grid_dim_y grid_dim_z
#ifndef FUSER_HOST
DEVICE i32 grid_dim_x() { return (i32)gridDim.x; }
DEVICE i32 grid_dim_y() { return (i32)gridDim.y; }
DEVICE i32 grid_dim_z() { return (i32)gridDim.z; }
#endif

//@ sync_block
// Barrier of the block. Every thread of the block arrives.
#ifndef FUSER_HOST
DEVICE void sync_block() { __syncthreads(); }
#endif

//@ shared_memory
// The dynamic shared memory of the block, aligned to 16 bytes.
#ifndef FUSER_HOST
extern __shared__ __align__(16) char fuser_shared[];
DEVICE char* shared_memory() { return fuser_shared; }
#endif
