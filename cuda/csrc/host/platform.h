// The runtime that the host side calls: CUDA's, HIP's under CUDA's names, or the emulation's.
#ifndef OPGUARD_HOST_PLATFORM_H
#define OPGUARD_HOST_PLATFORM_H

#if defined(OPGUARD_EMULATION)
#include "../emulation/runtime.h"
#elif defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaError_t hipError_t
#define cudaGetDevice hipGetDevice
#define cudaGetErrorString hipGetErrorString
#define cudaLaunchKernel hipLaunchKernel
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor
#define cudaSetDevice hipSetDevice
#define cudaStreamCaptureMode hipStreamCaptureMode
#define cudaStreamCaptureModeRelaxed hipStreamCaptureModeRelaxed
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess
#define cudaThreadExchangeStreamCaptureMode hipThreadExchangeStreamCaptureMode
#else
#include <cuda_runtime.h>
#endif

namespace opguard {

// Launch a kernel and return the launch's own code, which leaves no error behind for later calls.
#if defined(OPGUARD_EMULATION)
using emulation::launch;
#else
template <class... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
                   Parameters... arguments) {
  void* addresses[] = {static_cast<void*>(&arguments)...};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, addresses, 0, stream);
}
#endif

// Makes a device current and gives the caller's back.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    error_ = cudaGetDevice(&previous_);
    changed_ = error_ == cudaSuccess && previous_ != device;
    if (changed_) {
      error_ = cudaSetDevice(device);
      changed_ = error_ == cudaSuccess;
    }
  }
  ~CurrentDevice() {
    if (changed_) (void)cudaSetDevice(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int previous_ = -1;
  bool changed_ = false;
  cudaError_t error_;
};

}  // namespace opguard
#endif
