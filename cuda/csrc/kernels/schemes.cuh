// The two fingerprint schemes over a stream of numbered words (docs/formats/fingerprint.md).
#ifndef OPGUARD_KERNELS_SCHEMES_CUH
#define OPGUARD_KERNELS_SCHEMES_CUH

#include "platform.cuh"

namespace opguard {

constexpr u32 kIndexLow = 0x9E3779B1u;
constexpr u32 kIndexHigh = 0x85EBCA77u;
constexpr u32 kMultiply1 = 0x7FEB352Du;
constexpr u32 kMultiply2 = 0x846CA68Bu;

OPGUARD_DEVICE u32 mix(u32 word, u32 key) {
  u32 x = word ^ key;
  x = (x ^ (x >> 15)) * kMultiply1;
  x = (x ^ (x >> 15)) * kMultiply2;
  return (x ^ (x >> 15)) + key;
}

// flat-u32-le-v1 alone.
struct Plain {
  static constexpr u32 kValues = 1;
  u32 sums[kValues] = {0};

  OPGUARD_DEVICE_MEMBER void at_high(u32) {}
  OPGUARD_DEVICE_MEMBER void word(u32 word, u32) { sums[0] ^= word; }
};

// flat-u32-le-v1 and flat-u32-mix-v1.
struct Both {
  static constexpr u32 kValues = 2;
  u32 sums[kValues] = {0, 0};
  u32 high_key = 0;  // what the high half of the index adds to the key

  OPGUARD_DEVICE_MEMBER void at_high(u32 high) { high_key = high * kIndexHigh; }
  OPGUARD_DEVICE_MEMBER void word(u32 word, u32 low) {
    sums[0] ^= word;
    sums[1] ^= mix(word, low * kIndexLow + high_key);
  }
};

}  // namespace opguard
#endif
