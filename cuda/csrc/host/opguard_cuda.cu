// The C ABI: argument checks, the plan, and one or two launches.
#include "platform.h"

#include <atomic>

#include "../include/opguard_cuda.h"
#include "../kernels/fingerprint.cuh"

namespace opguard {
namespace {

constexpr u64 kTileBytes = 16ull * OPGUARD_THREADS * OPGUARD_UNROLL;
// Up to this size a region is one block's: a second launch would take longer than its four tiles.
constexpr u64 kOneBlockBytes = 4 * kTileBytes;
constexpr u64 kLeastBlockBytes = 2 * kTileBytes;
constexpr u32 kMostBlocks = 4096;
constexpr int kDevices = 64;

typedef void (*FingerprintKernel)(Bytes, Split, u32*);
typedef void (*StatisticsKernel)(Bytes, Split, u32*, Moments*);

struct ElementKind {
  u32 alignment;  // of a tensor's start
  StatisticsKernel aligned, shifted;
};

constexpr ElementKind kElements[] = {
    {1, nullptr, nullptr},
    {8, opguard_float64, nullptr},
    {4, opguard_float32, nullptr},
    {1, opguard_float16, opguard_float16_shifted},
    {1, opguard_bfloat16, opguard_bfloat16_shifted},
    {1, opguard_float8_e5m2, opguard_float8_e5m2_shifted},
    {1, opguard_float8_e4m3fn, opguard_float8_e4m3fn_shifted},
};
constexpr u32 kElementKinds = sizeof kElements / sizeof kElements[0];
constexpr u32 kElementBytes[] = {1, 8, 4, 2, 2, 1, 1};
static_assert(sizeof(Summary) == sizeof(opguard_cuda_statistics), "one layout under two names");

u32 values_per_region(u32 schemes) { return schemes == OPGUARD_CUDA_BOTH ? 2 : 1; }

// Bytes of the blocks' values, which moments follow: a multiple of eight.
u64 values_bytes(const opguard_cuda_plan& plan) {
  if (plan.blocks_per_region == 1) return 0;
  const u64 bytes = 4ull * values_per_region(plan.schemes) * plan.regions * plan.blocks_per_region;
  return (bytes + 7) / 8 * 8;
}

u64 workspace_bytes(const opguard_cuda_plan& plan) {
  const u64 moments = plan.element == OPGUARD_CUDA_NO_STATISTICS
                          ? 0
                          : sizeof(Moments) * plan.regions * plan.blocks_per_region;
  return values_bytes(plan) + moments;
}

bool is_valid(u32 regions, u32 schemes, u32 element) {
  return regions >= 1 && regions <= OPGUARD_CUDA_MAX_REGIONS && element < kElementKinds &&
         (schemes == OPGUARD_CUDA_BOTH || (schemes == OPGUARD_CUDA_PLAIN && element == 0));
}

}  // namespace
}  // namespace opguard

using namespace opguard;

extern "C" {

int32_t opguard_cuda_abi_version(void) { return OPGUARD_CUDA_ABI_VERSION; }

const char* opguard_cuda_error_string(int32_t result) {
  switch (result) {
    case OPGUARD_CUDA_OK:
      return "no error";
    case OPGUARD_CUDA_INVALID:
      return "an argument is out of range or missing";
    case OPGUARD_CUDA_WORKSPACE:
      return "the workspace is smaller than the plan says";
    case OPGUARD_CUDA_MISALIGNED:
      return "the tensor does not start at a multiple of its element's size";
    default:
      return result > 0 ? cudaGetErrorString(static_cast<cudaError_t>(result)) : "unknown result";
  }
}

int32_t opguard_cuda_resident_blocks(int32_t device, uint32_t* blocks) {
  static std::atomic<u32> known[kDevices];
  if (device < 0 || device >= kDevices || blocks == nullptr) return OPGUARD_CUDA_INVALID;
  u32 resident = known[device].load(std::memory_order_relaxed);
  if (resident == 0) {
    const CurrentDevice current(device);
    if (current.error() != cudaSuccess) return static_cast<int32_t>(current.error());
    int processors = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    // Every kernel is asked, since asking loads it: one that is loaded later, inside a stream
    // capture, would break the capture. The scarcest kernel decides.
    const void* kernels[] = {
        reinterpret_cast<const void*>(opguard_plain),
        reinterpret_cast<const void*>(opguard_plain_shifted),
        reinterpret_cast<const void*>(opguard_both),
        reinterpret_cast<const void*>(opguard_both_shifted),
        reinterpret_cast<const void*>(opguard_join),
    };
    int least = 0;
    for (const void* kernel : kernels) {
      int per_processor = 0;
      if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel,
                                                              OPGUARD_THREADS, 0);
      }
      if (least == 0 || per_processor < least) least = per_processor;
    }
    if (error != cudaSuccess) return static_cast<int32_t>(error);
    resident = static_cast<u32>(processors) * static_cast<u32>(least);
    known[device].store(resident, std::memory_order_relaxed);
  }
  *blocks = resident;
  return OPGUARD_CUDA_OK;
}

int32_t opguard_cuda_make_plan(uint64_t nbytes, uint32_t regions, uint32_t schemes,
                               uint32_t element, uint32_t resident_blocks,
                               opguard_cuda_plan* plan) {
  if (plan == nullptr || resident_blocks == 0 || !is_valid(regions, schemes, element) ||
      nbytes % kElementBytes[element] != 0) {
    return OPGUARD_CUDA_INVALID;
  }
  const u64 words = nbytes / 4 + (nbytes % 4 != 0);
  const u64 region_bytes = 4 * (words / regions + (words % regions != 0));
  u64 blocks = 1;
  if (region_bytes > kOneBlockBytes) {
    if (resident_blocks > kMostBlocks) resident_blocks = kMostBlocks;
    blocks = (region_bytes + kLeastBlockBytes - 1) / kLeastBlockBytes;
    // All blocks run at once: a second, partial wave would leave most of the device idle.
    const u64 most = resident_blocks >= regions ? resident_blocks / regions : 1;
    if (blocks > most) blocks = most;
  }
  *plan = {nbytes, regions, schemes, element, static_cast<u32>(blocks), 0, 0};
  plan->launches = blocks > 1 || element != OPGUARD_CUDA_NO_STATISTICS ? 2 : 1;
  plan->workspace_bytes = static_cast<u32>(workspace_bytes(*plan));
  return OPGUARD_CUDA_OK;
}

int32_t opguard_cuda_launch(const opguard_cuda_plan* plan, const void* data, uint32_t* out,
                            opguard_cuda_statistics* statistics, void* workspace,
                            uint64_t workspace_size, int32_t device, void* stream) {
  if (plan == nullptr || out == nullptr || (data == nullptr && plan->nbytes != 0) ||
      !is_valid(plan->regions, plan->schemes, plan->element) || plan->blocks_per_region < 1 ||
      plan->blocks_per_region > kMostBlocks ||
      (statistics == nullptr) != (plan->element == OPGUARD_CUDA_NO_STATISTICS)) {
    return OPGUARD_CUDA_INVALID;
  }
  const u64 needed = workspace_bytes(*plan);
  if (needed != 0 && (workspace == nullptr || workspace_size < needed)) {
    return OPGUARD_CUDA_WORKSPACE;
  }
  const ElementKind& kind = kElements[plan->element];
  const u64 start = reinterpret_cast<u64>(data);
  if (start % kind.alignment != 0) return OPGUARD_CUDA_MISALIGNED;

  const CurrentDevice current(device);
  if (current.error() != cudaSuccess) return static_cast<int32_t>(current.error());
  const bool shifted = start % 4 != 0;
  const bool joins = plan->blocks_per_region > 1;
  const u64 words = plan->nbytes / 4 + (plan->nbytes % 4 != 0);
  const Bytes tensor{static_cast<const byte*>(data), plan->nbytes};
  const Split split{words / plan->regions, static_cast<u32>(words % plan->regions)};
  u32* values = joins ? static_cast<u32*>(workspace) : out;
  Moments* moments = reinterpret_cast<Moments*>(static_cast<byte*>(workspace) + values_bytes(*plan));
  const dim3 grid(plan->blocks_per_region, plan->regions), block(OPGUARD_THREADS);
  const cudaStream_t queue = static_cast<cudaStream_t>(stream);

  cudaError_t error;
  if (statistics != nullptr) {
    error = launch(shifted ? kind.shifted : kind.aligned, grid, block, queue, tensor, split, values,
                   moments);
  } else {
    const FingerprintKernel kernel = plan->schemes == OPGUARD_CUDA_BOTH
                                         ? (shifted ? opguard_both_shifted : opguard_both)
                                         : (shifted ? opguard_plain_shifted : opguard_plain);
    error = launch(kernel, grid, block, queue, tensor, split, values);
  }
  if (error == cudaSuccess && (joins || statistics != nullptr)) {
    const u32 results = joins ? values_per_region(plan->schemes) * plan->regions : 0;
    const u32 moment_count = plan->regions * plan->blocks_per_region;
    const u32 blocks = results + (statistics != nullptr ? 1 : 0);
    error = launch(opguard_join, dim3(blocks), block, queue, static_cast<const u32*>(values),
                   u32{plan->blocks_per_region}, results, static_cast<u32*>(out),
                   static_cast<const Moments*>(moments), moment_count,
                   u64{plan->nbytes / kElementBytes[plan->element]},
                   reinterpret_cast<Summary*>(statistics));
  }
  return static_cast<int32_t>(error);
}

int32_t opguard_cuda_fingerprint(const void* data, uint64_t nbytes, uint32_t regions,
                                 uint32_t schemes, uint32_t* out, void* workspace,
                                 uint64_t workspace_size, int32_t device, void* stream) {
  uint32_t resident = 0;
  opguard_cuda_plan plan;
  int32_t result = opguard_cuda_resident_blocks(device, &resident);
  if (result == OPGUARD_CUDA_OK) {
    result = opguard_cuda_make_plan(nbytes, regions, schemes, OPGUARD_CUDA_NO_STATISTICS, resident,
                                    &plan);
  }
  if (result == OPGUARD_CUDA_OK) {
    result = opguard_cuda_launch(&plan, data, out, nullptr, workspace, workspace_size, device,
                                 stream);
  }
  return result;
}

int32_t opguard_cuda_relax_capture_mode(void) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return static_cast<int32_t>(cudaThreadExchangeStreamCaptureMode(&mode));
}

}  // extern "C"
