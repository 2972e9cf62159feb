/* C ABI of the fingerprint kernels. No CUDA header is needed to call it.
 *
 * Every launching function works on the caller's stream with the caller's buffers: it allocates
 * nothing, waits for nothing and keeps nothing. A result is an error code, never an exit.
 *
 * The first call is opguard_cuda_abi_version(): a library of another version must not be used.
 */
#ifndef OPGUARD_CUDA_H
#define OPGUARD_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPGUARD_CUDA_API __attribute__((visibility("default")))
#define OPGUARD_CUDA_ABI_VERSION 1
#define OPGUARD_CUDA_MAX_REGIONS 64

/* Results. Positive ones are codes of the CUDA runtime. */
enum {
  OPGUARD_CUDA_OK = 0,
  OPGUARD_CUDA_INVALID = -1,   /* an argument is out of range or missing */
  OPGUARD_CUDA_WORKSPACE = -2, /* the workspace is smaller than the plan says */
  OPGUARD_CUDA_MISALIGNED = -3 /* statistics of a tensor that does not start at an element */
};

/* What a launch computes. The mixed scheme always comes with the plain one. */
enum {
  OPGUARD_CUDA_PLAIN = 1, /* flat-u32-le-v1: out[regions] */
  OPGUARD_CUDA_BOTH = 3   /* and flat-u32-mix-v1: out[2 * regions], plain values first */
};

/* Element types whose statistics can be taken in the same read (with OPGUARD_CUDA_BOTH). */
enum {
  OPGUARD_CUDA_NO_STATISTICS = 0,
  OPGUARD_CUDA_FLOAT64 = 1,
  OPGUARD_CUDA_FLOAT32 = 2,
  OPGUARD_CUDA_FLOAT16 = 3,
  OPGUARD_CUDA_BFLOAT16 = 4,
  OPGUARD_CUDA_FLOAT8_E5M2 = 5,
  OPGUARD_CUDA_FLOAT8_E4M3FN = 6
};

/* Statistics of a whole tensor. NaN and infinite elements are counted, and left out of the rest.
 * The result depends on the order of additions, so it is equal bit by bit for equal plans only. */
typedef struct opguard_cuda_statistics {
  uint64_t elements;
  uint64_t nans;
  uint64_t infinities;
  uint64_t zeros;
  double minimum; /* +infinity without a finite element */
  double maximum; /* -infinity without a finite element */
  double absolute_maximum; /* 0 without a finite element */
  double mean;    /* NaN without a finite element */
  double l2;      /* square root of the sum of squares, taken in double */
} opguard_cuda_statistics;

/* How a tensor is spread over the device. */
typedef struct opguard_cuda_plan {
  uint64_t nbytes;
  uint32_t regions;
  uint32_t schemes;
  uint32_t element;
  uint32_t blocks_per_region;
  uint32_t launches;        /* 1 or 2 */
  uint32_t workspace_bytes; /* 0 with one launch */
} opguard_cuda_plan;

OPGUARD_CUDA_API int32_t opguard_cuda_abi_version(void);

/* English text of a result; the caller does not free it. */
OPGUARD_CUDA_API const char* opguard_cuda_error_string(int32_t result);

/* Number of thread blocks that the device runs at once. The first call for a device loads the
 * kernels, so it is made before a stream capture begins. */
OPGUARD_CUDA_API int32_t opguard_cuda_resident_blocks(int32_t device, uint32_t* blocks);

/* Plan for a tensor. Arithmetic only: no device is needed. */
OPGUARD_CUDA_API int32_t opguard_cuda_make_plan(uint64_t nbytes, uint32_t regions, uint32_t schemes,
                                                uint32_t element, uint32_t resident_blocks,
                                                opguard_cuda_plan* plan);

/* Fingerprint of nbytes at data (any alignment) by a plan for this size.
 *   out         device memory, uint32[regions] or uint32[2 * regions], written completely
 *   statistics  device memory, 8-byte aligned, iff the plan has an element type
 *   workspace   device memory, 8-byte aligned; free again when the stream has passed the launch
 *   stream      a cudaStream_t of the device */
OPGUARD_CUDA_API int32_t opguard_cuda_launch(const opguard_cuda_plan* plan, const void* data,
                                             uint32_t* out, opguard_cuda_statistics* statistics,
                                             void* workspace, uint64_t workspace_bytes,
                                             int32_t device, void* stream);

/* make_plan for the device's resident blocks, and launch, in one call. */
OPGUARD_CUDA_API int32_t opguard_cuda_fingerprint(const void* data, uint64_t nbytes,
                                                  uint32_t regions, uint32_t schemes, uint32_t* out,
                                                  void* workspace, uint64_t workspace_bytes,
                                                  int32_t device, void* stream);

/* Let the calling thread's later calls into CUDA be such that a stream capture of another thread
 * forbids (polling an event, say). For threads that only fetch results. */
OPGUARD_CUDA_API int32_t opguard_cuda_relax_capture_mode(void);

#ifdef __cplusplus
}
#endif
#endif
