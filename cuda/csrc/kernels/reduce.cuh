// Reductions over the threads of a block, in an order that does not depend on timing.
#ifndef OPGUARD_KERNELS_REDUCE_CUH
#define OPGUARD_KERNELS_REDUCE_CUH

#include "platform.cuh"

namespace opguard {

// XOR over the block; the result is valid in thread 0. Every thread of the block must call it.
// A block may call it once per array `part`, which has one element per warp.
OPGUARD_DEVICE u32 block_xor(u32 value, u32* part) {
  const u32 warp = threadIdx.x / warp_threads();
  const u32 warps = OPGUARD_THREADS / warp_threads();
  value = warp_xor(value);
  if (threadIdx.x % warp_threads() == 0) part[warp] = value;
  __syncthreads();
  if (warp == 0) value = warp_xor(threadIdx.x < warps ? part[threadIdx.x] : 0);
  return value;
}

// Combine values of a type with `merge(other)` and `from_lane(lanes)` over the block: a butterfly
// in each warp, then the warps in ascending order. The result is valid in thread 0.
template <class T>
OPGUARD_DEVICE void block_merge(T& value, T* part) {
  const u32 warp = threadIdx.x / warp_threads();
  const u32 warps = OPGUARD_THREADS / warp_threads();
  for (u32 lanes = warp_threads() / 2; lanes > 0; lanes /= 2) value.merge(value.from_lane(lanes));
  if (threadIdx.x % warp_threads() == 0) part[warp] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (u32 other = 1; other < warps; ++other) value.merge(part[other]);
  }
}

}  // namespace opguard
#endif
