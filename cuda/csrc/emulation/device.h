// An emulated device: runs the threads of one block at a time as fibers, and notices what would be
// wrong on a real one: barriers that not all threads reach, warp operations with wrong masks, reads
// outside the tensor or misaligned, shared memory that is read before it is written.
//
// Threads and blocks run in ascending, descending or shuffled order. With the thread sanitizer,
// threads of all blocks of a launch are unordered except by what CUDA itself orders.
#ifndef OPGUARD_EMULATION_DEVICE_H
#define OPGUARD_EMULATION_DEVICE_H

#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "fiber.h"

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace opguard {
namespace emulation {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostShared = 16;              // arrays of a block
constexpr size_t kMostSharedBytes = 48 << 10;     // of a block, as without opting in to more
constexpr size_t kSharedGap = 64;                 // between arrays
constexpr size_t kSharedSlab = kMostSharedBytes + (kMostShared + 1) * kSharedGap;
constexpr unsigned kWatchedThreads = 7000;        // the thread sanitizer holds about 8,000
constexpr unsigned char kGarbage = 0xA5;

struct Warp {
  unsigned arrived = 0, mask = 0, operation = 0, generation = 0;
  uint64_t given[kWarp], taken[kWarp];
};

struct Thread {
  Context context;
  dim3 index;
  unsigned number = 0;
  bool finished = true;
  const unsigned* awaited = nullptr;  // a generation; the thread waits while it is `seen`
  unsigned seen = 0;
};

struct Shared {
  const void* key;
  char* memory;
};

struct Block {
  dim3 index;
  unsigned threads = 0, finished = 0, arrived = 0, generation = 0;
  Warp warps[kMostThreads / kWarp];
  Shared shared[kMostShared];
  unsigned shared_count = 0;
  size_t shared_bytes = 0;   // with the gaps
  char* shared_slab = nullptr;
  char* order_tokens = nullptr;  // one address per barrier and warp of this block
};

class Device {
 public:
  static Device& get() {
    static Device device;
    return device;
  }

  // State that tests set and read.
  uintptr_t window_begin = 0, window_end = UINTPTR_MAX;
  uint64_t bytes_read = 0, launches = 0;
  unsigned order = 0;     // 0 ascending, 1 descending, else the seed of a shuffle
  int only_region = -1;   // run only the blocks with this blockIdx.y

  OPGUARD_UNWATCHED dim3 thread_index() const { return running->index; }
  OPGUARD_UNWATCHED dim3 block_index() const { return block.index; }
  OPGUARD_UNWATCHED dim3 grid_size() const { return grid; }
  OPGUARD_UNWATCHED unsigned lane() const { return running->number % kWarp; }

  void run(dim3 blocks, dim3 size, void (*body)(const void*), const void* argument);

  OPGUARD_UNWATCHED void barrier() {
    if (block.finished != 0) stop("a thread waits at a barrier that others have left behind");
    acquire_release(0, [this]() OPGUARD_UNWATCHED {
      const unsigned seen = block.generation;
      if (++block.arrived == block.threads) {
        block.arrived = 0;
        ++block.generation;
      } else {
        park(&block.generation, seen);
      }
    });
  }

  // All lanes of `mask` give a value each and take what all have given.
  OPGUARD_UNWATCHED const uint64_t* meet(unsigned mask, unsigned operation, uint64_t value) {
    const unsigned lane = running->number % kWarp, number = running->number / kWarp;
    Warp& warp = block.warps[number];
    if ((mask >> lane & 1) == 0) stop("a lane calls a warp operation whose mask leaves it out");
    if (warp.arrived != 0 && (warp.mask != mask || warp.operation != operation)) {
      stop("lanes of a warp meet in different operations");
    }
    acquire_release(1 + number, [&]() OPGUARD_UNWATCHED {
      const unsigned seen = warp.generation;
      warp.mask = mask;
      warp.operation = operation;
      warp.given[lane] = value;
      warp.arrived |= 1u << lane;
      if (warp.arrived == mask) {
        for (unsigned other = 0; other < kWarp; ++other) warp.taken[other] = warp.given[other];
        warp.arrived = 0;
        ++warp.generation;
      } else {
        park(&warp.generation, seen);
      }
    });
    return warp.taken;
  }

  OPGUARD_UNWATCHED void* shared_array(const void* key, size_t bytes) {
    for (unsigned i = 0; i < block.shared_count; ++i) {
      if (block.shared[i].key == key) return block.shared[i].memory;
    }
    char* memory = block.shared_slab + block.shared_bytes + kSharedGap;
    block.shared_bytes += kSharedGap + (bytes + 15) / 16 * 16;
    if (block.shared_count == kMostShared || block.shared_bytes + kSharedGap > kSharedSlab) {
      stop("too much shared memory");
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory, bytes);
#endif
    for (size_t i = 0; i < bytes; ++i) const_cast<volatile char*>(memory)[i] = char(kGarbage);
    block.shared[block.shared_count++] = {key, memory};
    return memory;
  }

  OPGUARD_UNWATCHED void check_read(uintptr_t at, size_t bytes) {
    if (at % bytes != 0) stop("a misaligned load");
    if (at < window_begin || at + bytes > window_end) stop("a read outside the tensor");
    bytes_read += bytes;
  }

 private:
  // Runs `wait`; what other threads of the group did before it happens before what follows.
  template <class Wait>
  OPGUARD_UNWATCHED void acquire_release(unsigned token, Wait wait) {
#if defined(__SANITIZE_THREAD__)
    char* address = block.order_tokens + token;
    __tsan_release(address);
    wait();
    __tsan_acquire(address);
#else
    (void)token;
    wait();
#endif
  }

  OPGUARD_UNWATCHED void park(const unsigned* generation, unsigned seen) {
    Thread* self = running;
    self->awaited = generation;
    self->seen = seen;
    while (*generation == seen) self->context.switch_to(main_);
    self->awaited = nullptr;
  }

  OPGUARD_UNWATCHED static void thread_main() {
    Device& device = get();
    device.running->context.arrived(device.main_);
    for (;;) {
      Thread* self = device.running;
      device.body_(device.argument_);
#if defined(__SANITIZE_THREAD__)
      __tsan_release(&device.argument_);
#endif
      // Stricter than recent devices, which only count the threads that are left.
      if (device.block.arrived != 0) stop("a thread ends while others wait at a barrier");
      self->finished = true;
      ++device.block.finished;
      self->context.switch_to(device.main_);  // comes back as a thread of a later block
    }
  }

  void run_block(Thread** turn, unsigned threads);
  uint64_t random();

  // Ascending items stay so in order 0, are reversed in order 1, else shuffled.
  template <class T>
  void arrange(T* items, uint64_t count) {
    if (order == 1) {
      for (uint64_t i = 0; i < count / 2; ++i) std::swap(items[i], items[count - 1 - i]);
    } else if (order > 1) {
      for (uint64_t i = count; i > 1; --i) std::swap(items[i - 1], items[random() % i]);
    }
  }

  Thread* running = nullptr;
  Block block;
  dim3 grid;
  std::mutex one_launch_;  // a stream runs its launches one after the other
  Context main_;
  Thread* threads_ = nullptr;
  unsigned prepared_ = 0;
  uint64_t random_state_ = 0;
  void (*body_)(const void*) = nullptr;
  const void* argument_ = nullptr;
};

inline uint64_t Device::random() {  // splitmix64
  uint64_t z = (random_state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

inline void Device::run_block(Thread** turn, unsigned threads) {
  block.threads = threads;
  block.finished = block.arrived = 0;
  block.shared_count = 0;
  block.shared_bytes = 0;
  for (Warp& warp : block.warps) warp.arrived = 0;
  for (unsigned i = 0; i < threads; ++i) {
    threads_[i].finished = false;
    threads_[i].awaited = nullptr;
  }
  while (block.finished != threads) {
    arrange(turn, threads);
    bool progress = false;
    for (unsigned i = 0; i < threads; ++i) {
      Thread* thread = turn[i];
      if (thread->finished) continue;
      if (thread->awaited != nullptr && *thread->awaited == thread->seen) continue;
      progress = true;
      running = thread;
      main_.switch_to(thread->context);
    }
    if (!progress) stop("deadlock: threads wait for others that never come");
  }
}

inline void Device::run(dim3 blocks_in_grid, dim3 size, void (*body)(const void*),
                        const void* argument) {
  const std::lock_guard<std::mutex> lock(one_launch_);
  const unsigned threads = size.x * size.y * size.z;
  const uint64_t blocks = uint64_t{blocks_in_grid.x} * blocks_in_grid.y * blocks_in_grid.z;
  ++launches;
  random_state_ = order;
  grid = blocks_in_grid, body_ = body, argument_ = argument;
  if (threads_ == nullptr) threads_ = new Thread[kMostThreads];
#if !defined(__SANITIZE_THREAD__)
  for (; prepared_ < threads; ++prepared_) threads_[prepared_].context.prepare(thread_main);
#endif
  Thread** turn = new Thread*[threads];
  for (unsigned i = 0; i < threads; ++i) {
    threads_[i].number = i;
    threads_[i].index = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
    turn[i] = threads_ + i;
  }
  uint64_t* blocks_in_turn = new uint64_t[blocks];
  for (uint64_t i = 0; i < blocks; ++i) blocks_in_turn[i] = i;
  arrange(blocks_in_turn, blocks);
#if defined(__SANITIZE_THREAD__)
  if (blocks * threads > kWatchedThreads) stop("too many threads for the thread sanitizer");
  const unsigned tokens = kMostThreads / kWarp + 1;
  char* order_tokens = new char[blocks * tokens];
  Context* watched = new Context[blocks * threads];
  uint64_t watched_count = 0;
  main_.tsan = __tsan_get_current_fiber();
  const uint64_t slabs = blocks;  // memory that no other block had, or blocks seem to race on it
#else
  const uint64_t slabs = 1;
#endif
  char* shared = static_cast<char*>(std::malloc(slabs * kSharedSlab));
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t number = blocks_in_turn[i];
    block.index = dim3(unsigned(number % grid.x), unsigned(number / grid.x % grid.y),
                       unsigned(number / grid.x / grid.y));
    if (only_region >= 0 && grid.y > 1 && block.index.y != unsigned(only_region)) continue;
#if defined(__SANITIZE_THREAD__)
    block.order_tokens = order_tokens + i * tokens;
    for (unsigned t = 0; t < threads; ++t) {  // stacks of their own too
      Context& fresh = watched[watched_count++];
      fresh.prepare(thread_main);
      fresh.tsan = __tsan_create_fiber(0);
      threads_[t].context = fresh;
    }
#endif
    block.shared_slab = shared + i % slabs * kSharedSlab;
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(block.shared_slab, kSharedSlab);
#endif
    run_block(turn, threads);
  }
#if defined(__SANITIZE_THREAD__)
  // Only now is the launch over for the sanitizer: ending a context earlier would order others.
  __tsan_acquire(&argument_);
  for (uint64_t i = 0; i < watched_count; ++i) {
    __tsan_destroy_fiber(watched[i].tsan);
    watched[i].release();
  }
  delete[] watched;
  delete[] order_tokens;
#endif
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(shared, kSharedSlab);
#endif
  std::free(shared);
  delete[] blocks_in_turn;
  delete[] turn;
}

}  // namespace emulation
}  // namespace opguard
#endif
