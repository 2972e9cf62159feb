// Walking the little-endian 32-bit words of a byte range that may start at any address.
//
// Loads are 16 bytes wide and aligned whatever the start. A *unit* is the four words that begin in
// one aligned vector: where the tensor starts `skew` bytes past a multiple of four, the last word
// of a unit ends in the next vector, and a funnel shift joins each word from two neighbours. In a
// warp the next vector is the next lane's, which a shuffle brings; only the last lane reads it.
// Words that no whole unit covers, at most four before the units and five after, are read byte by
// byte. No byte outside the tensor is read.
#ifndef OPGUARD_KERNELS_WORDS_CUH
#define OPGUARD_KERNELS_WORDS_CUH

#include "platform.cuh"

namespace opguard {

// A tensor in memory.
struct Bytes {
  const byte* data;
  u64 size;
};

// The word at an index; bytes past the tensor's end are zero.
OPGUARD_DEVICE u32 read_word(const Bytes& tensor, u64 index) {
  u32 word = 0;
#pragma unroll
  for (u32 lane = 0; lane < 4; ++lane) {
    const u64 at = 4 * index + lane;
    if (at < tensor.size) word |= static_cast<u32>(load(tensor.data + at)) << (8 * lane);
  }
  return word;
}

// The four words of a unit: its own vector, and the first word of the next.
template <bool SHIFTED>
OPGUARD_DEVICE void unit_words(const uint4& own, u32 next, u32 skew_bits, u32 (&words)[4]) {
  if (SHIFTED) {
    words[0] = __funnelshift_r(own.x, own.y, skew_bits);
    words[1] = __funnelshift_r(own.y, own.z, skew_bits);
    words[2] = __funnelshift_r(own.z, own.w, skew_bits);
    words[3] = __funnelshift_r(own.w, next, skew_bits);
  } else {
    words[0] = own.x, words[1] = own.y, words[2] = own.z, words[3] = own.w;
  }
}

// Feed a block's share of the words [first, last) to a sink.
//
// The range must not cross a multiple of 2^32 words, so that 32 bits number the words and units
// in it; addresses have 64. Blocks take tiles in turn; block 0 also takes the words at both ends.
//
// The sink has
//   unit(words, low)            four words of consecutive indices, `low` being the first's low half
//   edge(word, low, index)      one word, which may be the tensor's last, partial one
template <bool SHIFTED, class Sink>
OPGUARD_DEVICE void walk_words(const Bytes& tensor, u64 first, u64 last, u32 block, u32 blocks,
                               Sink& sink) {
  constexpr u32 kTile = OPGUARD_THREADS * OPGUARD_UNROLL;
  const u32 thread = threadIdx.x;
  const u64 start = reinterpret_cast<u64>(tensor.data);
  const u32 skew = SHIFTED ? static_cast<u32>(start & 3) : 0;
  const u32 skew_bits = 8 * skew;

  const u64 begin = start + 4 * first;
  const u64 end = start + (4 * last < tensor.size ? 4 * last : tensor.size);
  const u64 aligned = (begin + 15) & ~u64{15};
  const u64 past_units = SHIFTED ? 4 : 0;  // a unit reads into the vector after it
  const u32 units =
      end > aligned + past_units ? static_cast<u32>((end - aligned - past_units) / 16) : 0;
  u64 head_end = first + (aligned + skew - begin) / 4;
  if (head_end > last) head_end = last;
  const u64 tail = head_end + 4 * u64{units};

  const uint4* vectors = reinterpret_cast<const uint4*>(aligned);
  const u32 low = static_cast<u32>(head_end);
  const bool last_lane = thread % warp_threads() == warp_threads() - 1;

  u32 tile = block * kTile;
  for (; tile + kTile <= units; tile += blocks * kTile) {
    uint4 own[OPGUARD_UNROLL];
    u32 next[OPGUARD_UNROLL];
#pragma unroll
    for (u32 k = 0; k < OPGUARD_UNROLL; ++k) {
      own[k] = load16(vectors + (tile + k * OPGUARD_THREADS + thread));
    }
    if (SHIFTED && last_lane) {
#pragma unroll
      for (u32 k = 0; k < OPGUARD_UNROLL; ++k) {
        const uint4* after = vectors + (tile + k * OPGUARD_THREADS + thread + 1);
        next[k] = load(reinterpret_cast<const u32*>(after));
      }
    }
#pragma unroll
    for (u32 k = 0; k < OPGUARD_UNROLL; ++k) {
      u32 following = 0;
      if (SHIFTED) {
        following = shuffle_down(own[k].x, 1);
        if (last_lane) following = next[k];
      }
      u32 words[4];
      unit_words<SHIFTED>(own[k], following, skew_bits, words);
      sink.unit(words, low + 4 * (tile + k * OPGUARD_THREADS + thread));
    }
  }
  // The one tile that is not full, empty in every block but one. Lanes may be absent: no shuffles.
#pragma unroll 1
  for (u32 k = 0; k < OPGUARD_UNROLL; ++k) {
    const u32 unit = tile + k * OPGUARD_THREADS + thread;
    if (unit < units) {
      const uint4* at = vectors + unit;
      const u32 following = SHIFTED ? load(reinterpret_cast<const u32*>(at + 1)) : 0;
      u32 words[4];
      unit_words<SHIFTED>(load16(at), following, skew_bits, words);
      sink.unit(words, low + 4 * unit);
    }
  }
  if (block == 0 && thread < 16) {
    const u64 index = thread < 8 ? first + thread : tail + (thread - 8);
    if (index < (thread < 8 ? head_end : last)) {
      sink.edge(read_word(tensor, index), static_cast<u32>(index), index);
    }
  }
}

}  // namespace opguard
#endif
