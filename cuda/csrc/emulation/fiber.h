// Fibers: one per emulated CUDA thread, all on the calling OS thread.
//
// A switch is told to the address sanitizer, which keeps a shadow of the stack, and to the thread
// sanitizer as *not* synchronising, so that only what CUDA synchronises orders two threads.
#ifndef OPGUARD_EMULATION_FIBER_H
#define OPGUARD_EMULATION_FIBER_H

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// Without optimisation across calls, which moves reads into callers that are watched.
#define OPGUARD_UNWATCHED __attribute__((noipa, no_sanitize("thread")))
#else
#define OPGUARD_UNWATCHED
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace opguard {
namespace emulation {

[[noreturn]] inline void stop(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::abort();
}

#if defined(__x86_64__)
// Store the callee-saved registers on the running stack, leave its pointer in *from, go on at `to`.
extern "C" void opguard_emulation_switch(void** from, void* to);
__asm__(
    ".pushsection .text\n"
    ".weak opguard_emulation_switch\n"
    ".hidden opguard_emulation_switch\n"
    ".type opguard_emulation_switch, @function\n"
    "opguard_emulation_switch:\n"
    "  push %rbx\n  push %rbp\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbp\n  pop %rbx\n"
    "  ret\n"
    ".size opguard_emulation_switch, . - opguard_emulation_switch\n"
    ".popsection\n");
#endif

// An execution context. The default one stands for the OS thread itself.
class Context {
 public:
  // Give the context a stack of its own, below a page that faults, to run `entry` on; `entry`
  // never returns.
  void prepare(void (*entry)()) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) stop("no memory for a stack");
    mprotect(memory, page, PROT_NONE);
    bottom_ = static_cast<char*>(memory) + page;
    size_ = kStackBytes;
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>(static_cast<char*>(memory) + page + kStackBytes);
    *--top = nullptr;  // where entry's return address would be: its frame is aligned to 16 bytes
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    stack_pointer_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = const_cast<void*>(bottom_);
    context_.uc_stack.ss_size = size_;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#endif
  }

  // Give the stack back.
  void release() {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    munmap(static_cast<char*>(const_cast<void*>(bottom_)) - page, size_ + page);
  }

  OPGUARD_UNWATCHED void switch_to(Context& other) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, other.bottom_, other.size_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(other.tsan, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
    opguard_emulation_switch(&stack_pointer_, other.stack_pointer_);
#else
    swapcontext(&context_, &other.context_);
#endif
    arrived(other);
  }

  // What a context does first after each switch to it. Switches form a star, so the context that
  // it comes from is the one that it last went to, or its first caller.
  OPGUARD_UNWATCHED void arrived(Context& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_stack_, &from.bottom_, &from.size_);
#else
    (void)from;
#endif
  }

#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif

 private:
  static constexpr size_t kStackBytes = 128 << 10;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
  const void* bottom_ = nullptr;
  size_t size_ = 0;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack_ = nullptr;
#endif
};

}  // namespace emulation
}  // namespace opguard
#endif
