// The kernels: a first pass over the tensor, and a second over what its blocks found.
//
// First pass: grid (blocks per region, regions). With one block per region its values are the
// result, which lies as regions of the plain scheme, then regions of the mixed one. With more,
// each block leaves its values in the workspace, and the second pass joins them. XOR commutes, so
// no geometry can change a value; statistics are joined in the order of blocks.
#ifndef OPGUARD_KERNELS_FINGERPRINT_CUH
#define OPGUARD_KERNELS_FINGERPRINT_CUH

#include "reduce.cuh"
#include "schemes.cuh"
#include "statistics.cuh"
#include "words.cuh"

namespace opguard {

// Regions of `words` words each, of which the first `longer` have one more.
struct Split {
  u64 words;
  u32 longer;
};

OPGUARD_DEVICE u64 first_word(const Split& split, u32 region) {
  return region * split.words + (region < split.longer ? region : split.longer);
}

template <class Scheme, class Statistics>
struct Sink {
  const Bytes& tensor;
  Scheme scheme;
  Statistics statistics;

  OPGUARD_DEVICE_MEMBER void unit(const u32 (&words)[4], u32 low) {
#pragma unroll
    for (u32 k = 0; k < 4; ++k) scheme.word(words[k], low + k);
    statistics.unit(words);
  }

  OPGUARD_DEVICE_MEMBER void edge(u32 word, u32 low, u64 index) {
    scheme.word(word, low);
    statistics.edge(tensor, word, index);
  }
};

template <bool SHIFTED, class Scheme, class Statistics>
OPGUARD_DEVICE void first_pass(const Bytes& tensor, const Split& split, u32* values,
                               Sink<Scheme, Statistics>& sink) {
  const u32 region = blockIdx.y, regions = gridDim.y;
  const u32 block = blockIdx.x, blocks = gridDim.x;
  const u64 end = first_word(split, region + 1);
  for (u64 first = first_word(split, region); first < end;) {
    u64 last = (first | 0xFFFFFFFFull) + 1;  // the high half of the index is constant up to here
    if (last > end) last = end;
    sink.scheme.at_high(static_cast<u32>(first >> 32));
    walk_words<SHIFTED>(tensor, first, last, block, blocks, sink);
    first = last;
  }
  OPGUARD_SHARED(u32, part, Scheme::kValues * (OPGUARD_THREADS / 32));
#pragma unroll
  for (u32 scheme = 0; scheme < Scheme::kValues; ++scheme) {
    const u32 value = block_xor(sink.scheme.sums[scheme], part + scheme * (OPGUARD_THREADS / 32));
    if (threadIdx.x == 0) {
      values[(u64{scheme} * regions + region) * blocks + block] = value;
    }
  }
}

template <bool SHIFTED, class Scheme>
OPGUARD_DEVICE void fingerprint(const Bytes& tensor, const Split& split, u32* values) {
  Sink<Scheme, NoStatistics> sink{tensor, {}, {}};
  first_pass<SHIFTED>(tensor, split, values, sink);
}

template <bool SHIFTED, class Element>
OPGUARD_DEVICE void fingerprint_with_statistics(const Bytes& tensor, const Split& split,
                                                u32* values, Moments* moments) {
  Sink<Both, ElementStatistics<Element>> sink{tensor, {}, {}};
  first_pass<SHIFTED>(tensor, split, values, sink);
  OPGUARD_SHARED(Moments, part, OPGUARD_THREADS / 32);
  Moments found = sink.statistics.gathered.moments();
  block_merge(found, part);
  if (threadIdx.x == 0) moments[u64{blockIdx.y} * gridDim.x + blockIdx.x] = found;
}

// As opguard_cuda_statistics of the C ABI.
struct Summary {
  u64 elements, nans, infinities, zeros;
  double minimum, maximum, absolute_maximum, mean, l2;
};

OPGUARD_DEVICE void summarise(const Moments* moments, u32 count, u64 elements, Summary* summary) {
  OPGUARD_SHARED(Moments, part, OPGUARD_THREADS / 32);
  Moments found = Moments::none();
  for (u32 i = threadIdx.x; i < count; i += OPGUARD_THREADS) found.merge(moments[i]);
  block_merge(found, part);
  if (threadIdx.x == 0) {
    const u64 finite = elements - found.nans - found.infinities;
    const double above = found.maximum, below = -found.minimum;
    *summary = {elements, found.nans, found.infinities, found.zeros, found.minimum, found.maximum,
                finite == 0 ? 0.0 : (above > below ? above : below),
                found.sum / static_cast<double>(finite), sqrt(found.squares)};
  }
}

}  // namespace opguard

// Grid: one block per value of the result, and one more where there are statistics.
extern "C" __global__ void __launch_bounds__(OPGUARD_THREADS)
    opguard_join(const opguard::u32* values, opguard::u32 count, opguard::u32 results,
                 opguard::u32* out, const opguard::Moments* moments, opguard::u32 moment_count,
                 opguard::u64 elements, opguard::Summary* summary) {
  if (blockIdx.x == results) {
    opguard::summarise(moments, moment_count, elements, summary);
    return;
  }
  OPGUARD_SHARED(opguard::u32, part, OPGUARD_THREADS / 32);
  const opguard::u32* mine = values + opguard::u64{blockIdx.x} * count;
  opguard::u32 value = 0;
  for (opguard::u32 i = threadIdx.x; i < count; i += OPGUARD_THREADS) value ^= mine[i];
  value = opguard::block_xor(value, part);
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

#define OPGUARD_FINGERPRINT_KERNEL(name, scheme, shifted)                                     \
  extern "C" __global__ void OPGUARD_BOUNDS                                                   \
      name(opguard::Bytes tensor, opguard::Split split, opguard::u32* values) {               \
    opguard::fingerprint<shifted, opguard::scheme>(tensor, split, values);                    \
  }

OPGUARD_FINGERPRINT_KERNEL(opguard_plain, Plain, false)
OPGUARD_FINGERPRINT_KERNEL(opguard_plain_shifted, Plain, true)
OPGUARD_FINGERPRINT_KERNEL(opguard_both, Both, false)
OPGUARD_FINGERPRINT_KERNEL(opguard_both_shifted, Both, true)

#define OPGUARD_STATISTICS_KERNEL(name, element, shifted)                                     \
  extern "C" __global__ void __launch_bounds__(OPGUARD_THREADS)                               \
      name(opguard::Bytes tensor, opguard::Split split, opguard::u32* values,                 \
           opguard::Moments* moments) {                                                       \
    opguard::fingerprint_with_statistics<shifted, opguard::element>(tensor, split, values,    \
                                                                    moments);                 \
  }

// Elements of four and eight bytes are aligned, so their words are never shifted.
OPGUARD_STATISTICS_KERNEL(opguard_float64, Float64, false)
OPGUARD_STATISTICS_KERNEL(opguard_float32, Float32, false)
OPGUARD_STATISTICS_KERNEL(opguard_float16, Float16, false)
OPGUARD_STATISTICS_KERNEL(opguard_float16_shifted, Float16, true)
OPGUARD_STATISTICS_KERNEL(opguard_bfloat16, BFloat16, false)
OPGUARD_STATISTICS_KERNEL(opguard_bfloat16_shifted, BFloat16, true)
OPGUARD_STATISTICS_KERNEL(opguard_float8_e5m2, Float8E5M2, false)
OPGUARD_STATISTICS_KERNEL(opguard_float8_e5m2_shifted, Float8E5M2, true)
OPGUARD_STATISTICS_KERNEL(opguard_float8_e4m3fn, Float8E4M3Fn, false)
OPGUARD_STATISTICS_KERNEL(opguard_float8_e4m3fn_shifted, Float8E4M3Fn, true)

#endif
