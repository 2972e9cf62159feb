// The names of CUDA C++ and its runtime that the kernels and the host side use, on the emulated
// device. The rest of the C ABI's own functions for tests stand at the end.
#ifndef OPGUARD_EMULATION_RUNTIME_H
#define OPGUARD_EMULATION_RUNTIME_H

#include <cmath>

#include "device.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (opguard::emulation::Device::get().thread_index())
#define blockIdx (opguard::emulation::Device::get().block_index())
#define gridDim (opguard::emulation::Device::get().grid_size())

#define OPGUARD_EMULATED_SHARED(type, count)                                             \
  [] {                                                                                   \
    static char key;                                                                     \
    return static_cast<type*>(                                                           \
        opguard::emulation::Device::get().shared_array(&key, sizeof(type) * (count)));   \
  }()
#define OPGUARD_EMULATED_READ(type, at) opguard::emulation::read<type>(at)

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

using std::fma;
using std::sqrt;

namespace opguard {
namespace emulation {

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "equal sizes");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

template <class T>
inline T read(const T* at) {
  Device::get().check_read(reinterpret_cast<uintptr_t>(at), sizeof(T));
  return *at;
}

enum Operation : unsigned { kReduceXor = 1, kShuffleDown, kShuffleXor };

template <class T>
inline T lane_value(unsigned mask, Operation operation, T value, unsigned source) {
  uint64_t given = 0;
  std::memcpy(&given, &value, sizeof value);
  const uint64_t* all = Device::get().meet(mask, operation, given);
  if ((mask >> source & 1) == 0) stop("a shuffle reads a lane that its mask leaves out");
  T result;
  std::memcpy(&result, all + source, sizeof result);
  return result;
}

inline unsigned lane() { return Device::get().lane(); }

// The arguments are copied, as a launch does.
template <class... Parameters>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, void*, Parameters... arguments) {
  constexpr int kInvalidConfiguration = 9;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      threads == 0 || threads > kMostThreads) {
    return kInvalidConfiguration;
  }
  const auto body = [&] { kernel(arguments...); };
  Device::get().run(
      grid, block, [](const void* self) { (*static_cast<decltype(body)*>(self))(); }, &body);
  return 0;
}

}  // namespace emulation
}  // namespace opguard

inline void __syncthreads() { opguard::emulation::Device::get().barrier(); }

inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  namespace emulation = opguard::emulation;
  const uint64_t* all = emulation::Device::get().meet(mask, emulation::kReduceXor, value);
  unsigned result = 0;
  for (unsigned lane = 0; lane < emulation::kWarp; ++lane) {
    if (mask >> lane & 1) result ^= static_cast<unsigned>(all[lane]);
  }
  return result;
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes) {
  namespace emulation = opguard::emulation;
  const unsigned from = emulation::lane() + lanes;
  return emulation::lane_value(mask, emulation::kShuffleDown, value,
                               from < emulation::kWarp ? from : emulation::lane());
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, unsigned lanes) {
  namespace emulation = opguard::emulation;
  return emulation::lane_value(mask, emulation::kShuffleXor, value, emulation::lane() ^ lanes);
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const uint64_t joined = uint64_t{high} << 32 | low;
  return static_cast<unsigned>(joined >> (shift & 31));
}

typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidDevice = 101 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeRelaxed };

// Two emulated devices of four processors.
inline int& opguard_emulated_current_device() {
  static thread_local int device = 0;
  return device;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = opguard_emulated_current_device();
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device > 1) return cudaErrorInvalidDevice;
  opguard_emulated_current_device() = device;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 4;
  return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "error of the emulated device";
}

#define OPGUARD_EMULATION_API extern "C" __attribute__((visibility("default"), weak))

// Reads must lie in [begin, begin + nbytes) from now on; the counters start anew.
OPGUARD_EMULATION_API void opguard_emulation_watch(const void* begin, uint64_t nbytes) {
  auto& device = opguard::emulation::Device::get();
  device.window_begin = reinterpret_cast<uintptr_t>(begin);
  device.window_end = device.window_begin + nbytes;
  device.bytes_read = device.launches = 0;
}
OPGUARD_EMULATION_API uint64_t opguard_emulation_bytes_read(void) {
  return opguard::emulation::Device::get().bytes_read;
}
OPGUARD_EMULATION_API uint64_t opguard_emulation_launches(void) {
  return opguard::emulation::Device::get().launches;
}
// Order of threads and blocks: 0 ascending, 1 descending, else the seed of a shuffle.
OPGUARD_EMULATION_API void opguard_emulation_order(uint32_t order) {
  opguard::emulation::Device::get().order = order;
}
// Run only the blocks of one region in first passes; -1 runs all.
OPGUARD_EMULATION_API void opguard_emulation_only_region(int32_t region) {
  opguard::emulation::Device::get().only_region = region;
}
#endif
