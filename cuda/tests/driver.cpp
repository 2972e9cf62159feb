// Runs the emulated kernels through the C ABI against a plain reference, as a program of its own,
// since sanitizers want to be linked into one.
//
//   driver small SIZES      every size below SIZES at every start
//   driver exhaustive SIZES every size below SIZES with every number of regions at every start
//   driver random CASES     sizes to 4 MiB, regions, starts and grids at random
//   driver tiles CASES      sizes around the boundaries of tiles, blocks and regions
//   driver threads CASES    few threads, for the thread sanitizer
//   driver large            regions around word 2^32 of a tensor of 17 GiB, in little memory
//   driver whole            all of that tensor
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "include/opguard_cuda.h"

extern "C" void opguard_emulation_watch(const void* begin, uint64_t nbytes);
extern "C" void opguard_emulation_order(uint32_t order);
extern "C" void opguard_emulation_only_region(int32_t region);

namespace {

constexpr uint32_t kGuard = 0xDEADBEEFu;
uint64_t cases_run = 0;

uint32_t mixed(uint32_t word, uint64_t index) {
  const uint32_t key =
      uint32_t(index) * 0x9E3779B1u + uint32_t(index >> 32) * 0x85EBCA77u;
  uint32_t x = word ^ key;
  x ^= x >> 15;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  x ^= x >> 15;
  return x + key;
}

std::vector<uint32_t> reference(const unsigned char* data, uint64_t nbytes, uint32_t regions,
                                uint32_t schemes) {
  std::vector<uint32_t> out(regions * (schemes == OPGUARD_CUDA_BOTH ? 2 : 1), 0);
  const uint64_t words = (nbytes + 3) / 4;
  uint64_t index = 0;
  for (uint32_t region = 0; region < regions; ++region) {
    const uint64_t count = words / regions + (region < words % regions);
    for (uint64_t end = index + count; index < end; ++index) {
      uint32_t word = 0;
      for (uint64_t at = 4 * index; at < 4 * index + 4 && at < nbytes; ++at) {
        word |= uint32_t(data[at]) << (8 * (at % 4));
      }
      out[region] ^= word;
      if (schemes == OPGUARD_CUDA_BOTH) out[regions + region] ^= mixed(word, index);
    }
  }
  return out;
}

// Value of a float given by its bits, by definition.
double decode(uint64_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
  const uint64_t exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const uint64_t mantissa = bits & ((1ull << mantissa_bits) - 1);
  const uint64_t top = (1u << exponent_bits) - 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == top && has_infinity) {
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == top && mantissa == (1ull << mantissa_bits) - 1) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(double(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(double(mantissa | 1ull << mantissa_bits),
                           int(exponent) - bias - mantissa_bits);
}

struct ElementKind {
  uint32_t id, bytes;
  int exponent_bits, mantissa_bits;
  bool has_infinity;
  uint32_t start_step;  // starts that are multiples of this are taken
};
constexpr ElementKind kElements[] = {
    {OPGUARD_CUDA_FLOAT64, 8, 11, 52, true, 8},   {OPGUARD_CUDA_FLOAT32, 4, 8, 23, true, 4},
    {OPGUARD_CUDA_FLOAT16, 2, 5, 10, true, 1},    {OPGUARD_CUDA_BFLOAT16, 2, 8, 7, true, 1},
    {OPGUARD_CUDA_FLOAT8_E5M2, 1, 5, 2, true, 1}, {OPGUARD_CUDA_FLOAT8_E4M3FN, 1, 4, 3, false, 1},
};

[[noreturn]] void fail(const char* what, const opguard_cuda_plan& plan, unsigned offset) {
  std::printf("FAIL %s: %llu bytes, %u regions, schemes %u, element %u, %u blocks, offset %u\n",
              what, (unsigned long long)plan.nbytes, plan.regions, plan.schemes, plan.element,
              plan.blocks_per_region, offset);
  std::exit(1);
}

bool close(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::fabs(got - want) <= 1e-9 * (std::fabs(want) + 1e-300);
}

void check_statistics(const opguard_cuda_statistics& got, const unsigned char* data,
                      const ElementKind& kind, const opguard_cuda_plan& plan, unsigned offset) {
  opguard_cuda_statistics want = {};
  want.minimum = std::numeric_limits<double>::infinity();
  want.maximum = -want.minimum;
  want.elements = plan.nbytes / kind.bytes;
  long double sum = 0, absolute = 0, squares = 0;
  for (uint64_t i = 0; i < want.elements; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, data + i * kind.bytes, kind.bytes);
    const double value = decode(bits, kind.exponent_bits, kind.mantissa_bits, kind.has_infinity);
    want.nans += std::isnan(value);
    want.infinities += std::isinf(value);
    want.zeros += value == 0;
    if (!std::isfinite(value)) continue;
    want.minimum = std::min(want.minimum, value);
    want.maximum = std::max(want.maximum, value);
    want.absolute_maximum = std::max(want.absolute_maximum, std::fabs(value));
    sum += value;
    absolute += std::fabs(value);
    squares += (long double)value * value;
  }
  const uint64_t finite = want.elements - want.nans - want.infinities;
  if (got.elements != want.elements || got.nans != want.nans || got.zeros != want.zeros ||
      got.infinities != want.infinities || got.minimum != want.minimum ||
      got.maximum != want.maximum || got.absolute_maximum != want.absolute_maximum) {
    fail("counts or bounds", plan, offset);
  }
  if (finite == 0 ? !std::isnan(got.mean)
                  : std::fabs(got.mean - double(sum / finite)) > 1e-12 * double(absolute / finite)) {
    fail("mean", plan, offset);
  }
  if (!close(got.l2, std::sqrt(double(squares)))) fail("l2", plan, offset);
}

// One tensor in memory of its own size, so that the address sanitizer stands at both its ends.
void check(uint64_t nbytes, uint32_t regions, unsigned offset, uint32_t schemes,
           uint32_t forced_blocks, uint32_t element_index, uint64_t seed) {
  const ElementKind* kind = element_index < 6 ? &kElements[element_index] : nullptr;
  if (kind != nullptr) nbytes -= nbytes % kind->bytes;
  std::vector<unsigned char> memory(offset + nbytes);
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (unsigned char& item : memory) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    item = (unsigned char)(state >> 56);
  }
  unsigned char* data = memory.data() + offset;
  if (kind != nullptr && nbytes >= 64) std::memset(data + 32, 0, 16);  // zeros are rare in noise
  if (kind != nullptr && kind->bytes == 8) {
    // Numbers below two, whose sums stay finite, and some that are no numbers.
    for (uint64_t i = 0; i < nbytes / 8; ++i) {
      unsigned char* top = data + 8 * i + 6;
      top[1] &= 0xBF;
      if (i % 13 == 5) top[1] |= 0x7F, top[0] |= 0xF0;
      if (i % 26 == 5) std::memset(data + 8 * i, 0, 6), top[0] = 0xF0;
    }
  }
  opguard_cuda_plan plan;
  if (opguard_cuda_make_plan(nbytes, regions, schemes, kind ? kind->id : 0, 8, &plan) != 0) {
    std::printf("FAIL: no plan\n");
    std::exit(1);
  }
  if (forced_blocks != 0) {
    plan.blocks_per_region = forced_blocks;
    plan.workspace_bytes = 72 * regions * forced_blocks + 8;
  }
  std::vector<uint64_t> workspace(plan.workspace_bytes / 8, 0xABABABABABABABABull);
  const std::vector<uint32_t> want = reference(data, nbytes, regions, schemes);
  std::vector<uint32_t> out(want.size() + 2, kGuard);
  opguard_cuda_statistics statistics[2];
  for (int turn = 0; turn < (kind ? 2 : 1); ++turn) {
    opguard_emulation_order(uint32_t((seed + turn) % 5));
    opguard_emulation_watch(data, nbytes);
    const int32_t result =
        opguard_cuda_launch(&plan, nbytes ? data : nullptr, out.data() + 1,
                            kind ? &statistics[turn] : nullptr, workspace.data(),
                            8 * workspace.size(), 0, nullptr);
    if (result != 0) fail(opguard_cuda_error_string(result), plan, offset);
    if (!std::equal(want.begin(), want.end(), out.begin() + 1)) fail("values", plan, offset);
    if (out.front() != kGuard || out.back() != kGuard) fail("guard words", plan, offset);
    if (kind != nullptr) check_statistics(statistics[turn], data, *kind, plan, offset);
  }
  if (kind != nullptr && std::memcmp(&statistics[0], &statistics[1], sizeof statistics[0]) != 0) {
    fail("statistics depend on the order of threads", plan, offset);
  }
  ++cases_run;
}

// One file of random bytes mapped again and again stands for a large tensor, of which the given
// regions are read.
void check_large(uint32_t regions, const std::vector<uint32_t>& read, bool all) {
  const uint64_t piece = 32ull << 20, size = 17ull << 30;
  const int file = memfd_create("opguard", 0);
  std::vector<uint64_t> noise(piece / 8);
  uint64_t state = 1;
  for (uint64_t& item : noise) item = state = state * 6364136223846793005ull + 1442695040888963407ull;
  if (file < 0 || write(file, noise.data(), piece) != ssize_t(piece)) std::exit(2);
  void* reserved = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) std::exit(2);
  unsigned char* memory = static_cast<unsigned char*>(reserved);
  for (uint64_t at = 0; at < size; at += piece) {
    mmap(memory + at, piece, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
  }
  for (const unsigned offset : {3u, 0u}) {
    if (all && offset == 0) continue;
    const unsigned char* data = memory + offset;
    opguard_cuda_plan plan;
    opguard_cuda_make_plan(size - 16, regions, OPGUARD_CUDA_BOTH, 0, 1056, &plan);
    std::vector<uint64_t> workspace(plan.workspace_bytes / 8);
    const uint64_t words = plan.nbytes / 4;
    std::vector<uint32_t> out(2 * regions);
    for (size_t turn = 0; turn < read.size(); ++turn) {
      const uint32_t region = read[turn];
      opguard_emulation_only_region(all ? -1 : int32_t(region));
      opguard_emulation_watch(data, plan.nbytes);
      if (!all || turn == 0) {
        const int32_t result = opguard_cuda_launch(&plan, data, out.data(), nullptr,
                                                   workspace.data(), 8 * workspace.size(), 0,
                                                   nullptr);
        if (result != 0) fail(opguard_cuda_error_string(result), plan, offset);
      }
      const uint64_t longer = words % regions;
      const uint64_t begin = region * (words / regions) + std::min<uint64_t>(region, longer);
      uint32_t plain = 0, mixed_value = 0;
      for (uint64_t index = begin; index < begin + words / regions + (region < longer); ++index) {
        uint32_t word;
        std::memcpy(&word, data + 4 * index, 4);
        plain ^= word;
        mixed_value ^= mixed(word, index);
      }
      if (out[region] != plain || out[regions + region] != mixed_value) {
        fail("values of a large tensor", plan, offset);
      }
      ++cases_run;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* sizes = argc > 1 ? argv[1] : "small";
  const uint64_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1000;
  const uint32_t kRegions[] = {1, 2, 3, 4, 5, 7, 8, 13, 31, 32, 33, 63, 64};
  if (std::strcmp(sizes, "large") == 0) {
    check_large(64, {60, 63}, false);  // the region that crosses word 2^32, and the last
  } else if (std::strcmp(sizes, "whole") == 0) {
    check_large(3, {0, 1, 2}, true);
  } else if (std::strcmp(sizes, "exhaustive") == 0) {
    for (uint64_t nbytes = 0; nbytes < most; ++nbytes) {
      for (uint32_t regions = 1; regions <= 64; ++regions) {
        for (unsigned offset = 0; offset < 16; ++offset) {
          check(nbytes, regions, offset, OPGUARD_CUDA_BOTH, 0, 6, nbytes + regions);
        }
      }
    }
  } else if (std::strcmp(sizes, "random") == 0) {
    uint64_t state = 20;
    const auto below = [&state](uint64_t limit) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      return (state >> 33) % limit;
    };
    for (uint64_t i = 0; i < most; ++i) {
      const uint64_t nbytes = below(4ull << 20);
      const uint32_t regions = uint32_t(1 + below(64)), blocks = uint32_t(below(9));
      check(nbytes, regions, unsigned(below(16)), OPGUARD_CUDA_BOTH, blocks, 6, i);
    }
  } else if (std::strcmp(sizes, "small") == 0) {
    for (uint64_t nbytes = 0; nbytes < most; ++nbytes) {
      for (unsigned offset = 0; offset < 16; ++offset) {
        const uint32_t regions = kRegions[(nbytes + 5 * offset) % 13];
        check(nbytes, regions, offset, OPGUARD_CUDA_BOTH, 0, 6, nbytes);
        check(nbytes, 1 + (nbytes + offset) % 6, offset, OPGUARD_CUDA_PLAIN, 0, 6, nbytes + 1);
        const ElementKind& kind = kElements[(nbytes + offset) % 6];
        if (offset % kind.start_step == 0) {
          check(nbytes, 1 + offset % 4, offset, OPGUARD_CUDA_BOTH, 0, (nbytes + offset) % 6, nbytes);
        }
      }
    }
  } else {
    const bool threads = std::strcmp(sizes, "threads") == 0;
    for (uint64_t i = 0; i < most; ++i) {
      const uint64_t nbytes = (i * 7919 + i * i * 13) % (threads ? 9000 : 70000);
      const uint32_t regions = threads ? 1 + i % 3 : kRegions[i % 13] % 9 + 1;
      const unsigned offset = unsigned(i * 5 % 16);
      const uint32_t element = uint32_t(i % 9);
      const bool fits = element >= 6 || offset % kElements[element].start_step == 0;
      check(nbytes, regions, offset, i % 9 == 7 ? OPGUARD_CUDA_PLAIN : OPGUARD_CUDA_BOTH,
            uint32_t(i % 4), fits ? element : 6, i);
    }
  }
  std::printf("%llu cases\n", (unsigned long long)cases_run);
}
