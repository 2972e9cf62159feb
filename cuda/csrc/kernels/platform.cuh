// What nvcc, hipcc and the emulation do not share. Nothing else of the kernels asks who compiles.
#ifndef OPGUARD_KERNELS_PLATFORM_CUH
#define OPGUARD_KERNELS_PLATFORM_CUH

#ifndef OPGUARD_THREADS
#define OPGUARD_THREADS 256  // threads of a block, a multiple of the warp
#endif
#ifndef OPGUARD_UNROLL
#define OPGUARD_UNROLL 4  // 16-byte loads that a thread has in flight
#endif

// Blocks that a processor shall hold. Asking for six leaves 40 registers to a thread; left to itself
// the compiler takes 32, and then issues two of the four loads of a tile only after the first two
// are used up.
#ifndef OPGUARD_RESIDENT
#define OPGUARD_RESIDENT 6
#endif
#if defined(__HIP_PLATFORM_AMD__)  // where the second bound means something else
#define OPGUARD_BOUNDS __launch_bounds__(OPGUARD_THREADS)
#else
#define OPGUARD_BOUNDS __launch_bounds__(OPGUARD_THREADS, OPGUARD_RESIDENT)
#endif

#define OPGUARD_DEVICE static __device__ __forceinline__
#define OPGUARD_DEVICE_MEMBER __device__ __forceinline__

namespace opguard {

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char byte;

#if defined(OPGUARD_EMULATION)
// Shared arrays are handed out afresh and full of garbage for each block; reads are checked.
#define OPGUARD_SHARED(type, name, count) type* const name = OPGUARD_EMULATED_SHARED(type, count)
#else
#define OPGUARD_SHARED(type, name, count) __shared__ type name[count]
#endif

#if defined(__HIP_PLATFORM_AMD__)
OPGUARD_DEVICE u32 warp_threads() { return warpSize; }
template <class T>
OPGUARD_DEVICE T shuffle_down(T value, u32 lanes) { return __shfl_down(value, lanes); }
template <class T>
OPGUARD_DEVICE T shuffle_xor(T value, u32 lanes) { return __shfl_xor(value, lanes); }
OPGUARD_DEVICE u32 warp_xor(u32 value) {
  for (u32 lanes = warp_threads() / 2; lanes > 0; lanes /= 2) value ^= shuffle_xor(value, lanes);
  return value;
}
#else
constexpr u32 kAllLanes = 0xFFFFFFFFu;
OPGUARD_DEVICE constexpr u32 warp_threads() { return 32; }
template <class T>
OPGUARD_DEVICE T shuffle_down(T value, u32 lanes) {
  return __shfl_down_sync(kAllLanes, value, lanes);
}
template <class T>
OPGUARD_DEVICE T shuffle_xor(T value, u32 lanes) {
  return __shfl_xor_sync(kAllLanes, value, lanes);
}
OPGUARD_DEVICE u32 warp_xor(u32 value) { return __reduce_xor_sync(kAllLanes, value); }
#endif

// Tensor bytes are read once: L1 need not keep them. L2 may, since the tensor's consumer is next.
OPGUARD_DEVICE uint4 load16(const uint4* at) {
#if defined(__CUDA_ARCH__)
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(at));
  return v;
#elif defined(OPGUARD_EMULATION)
  return OPGUARD_EMULATED_READ(uint4, at);
#else
  return *at;
#endif
}

template <class T>
OPGUARD_DEVICE T load(const T* at) {
#if defined(OPGUARD_EMULATION)
  return OPGUARD_EMULATED_READ(T, at);
#elif defined(__CUDA_ARCH__)
  return __ldg(at);
#else
  return *at;
#endif
}

}  // namespace opguard
#endif
