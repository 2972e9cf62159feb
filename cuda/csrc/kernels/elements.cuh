// Element types of statistics: how many lie in a word, and their values.
#ifndef OPGUARD_KERNELS_ELEMENTS_CUH
#define OPGUARD_KERNELS_ELEMENTS_CUH

#include "platform.cuh"

namespace opguard {

OPGUARD_DEVICE float float_of_bits(u32 bits) {
#if defined(OPGUARD_EMULATION)
  return emulation::bit_cast<float>(bits);
#else
  return __uint_as_float(bits);
#endif
}

OPGUARD_DEVICE double double_of_words(u32 low, u32 high) {
#if defined(OPGUARD_EMULATION)
  return emulation::bit_cast<double>(u64{high} << 32 | low);
#else
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
#endif
}

// A float with EXPONENT and MANTISSA bits in the low end of `bits`, widened without rounding.
template <u32 EXPONENT, u32 MANTISSA>
OPGUARD_DEVICE float widen(u32 bits) {
  constexpr u32 kShift = 23 - MANTISSA;
  constexpr u32 kBias = (1u << (EXPONENT - 1)) - 1;
  constexpr u32 kMagnitude = (1u << (EXPONENT + MANTISSA)) - 1;
  const u32 sign = (bits >> (EXPONENT + MANTISSA) & 1) << 31;
  const u32 magnitude = bits & kMagnitude;
  if (magnitude >> MANTISSA == (1u << EXPONENT) - 1) {  // infinity or NaN
    return float_of_bits(sign | 0x7F800000u | magnitude << kShift);
  }
  // Scaled up by a power of two: exact, and right for subnormal numbers as well.
  return float_of_bits(sign | magnitude << kShift) * float_of_bits((254 - kBias) << 23);
}

struct Float64 {
  static constexpr u32 kBytes = 8;
  typedef double Value;
};

struct Float32 {
  static constexpr u32 kBytes = 4;
  typedef float Value;
  OPGUARD_DEVICE_MEMBER static float value(u32 word, u32) { return float_of_bits(word); }
};

struct Float16 {
  static constexpr u32 kBytes = 2;
  typedef float Value;
  OPGUARD_DEVICE_MEMBER static float value(u32 word, u32 k) {
    return widen<5, 10>(word >> (16 * k) & 0xFFFF);
  }
};

struct BFloat16 {
  static constexpr u32 kBytes = 2;
  typedef float Value;
  OPGUARD_DEVICE_MEMBER static float value(u32 word, u32 k) {
    return float_of_bits(k == 0 ? word << 16 : word & 0xFFFF0000u);
  }
};

struct Float8E5M2 {
  static constexpr u32 kBytes = 1;
  typedef float Value;
  OPGUARD_DEVICE_MEMBER static float value(u32 word, u32 k) {
    return widen<5, 2>(word >> (8 * k) & 0xFF);
  }
};

// The "fn" kind has no infinities: the largest exponent is an ordinary one, and only its last
// mantissa is NaN.
struct Float8E4M3Fn {
  static constexpr u32 kBytes = 1;
  typedef float Value;
  OPGUARD_DEVICE_MEMBER static float value(u32 word, u32 k) {
    const u32 bits = word >> (8 * k) & 0xFF;
    const u32 sign = (bits & 0x80) << 24, magnitude = bits & 0x7F;
    if (magnitude == 0x7F) return float_of_bits(sign | 0x7FC00000u);
    return float_of_bits(sign | magnitude << 20) * float_of_bits((254 - 7) << 23);
  }
};

}  // namespace opguard
#endif
