#include "codec/device/emulation/fibre.h"

#include <sys/mman.h>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define TERN_FIBRES_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TERN_FIBRES_UNDER_ASAN 1
#endif
#endif

#ifdef TERN_FIBRES_UNDER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tern::codec::device::emulation {
namespace {

// The two ends of the switch under way.
thread_local Fibre* leaving = nullptr;
thread_local Fibre* entering = nullptr;

}  // namespace

void Fibre::prepare(std::byte* stack, std::size_t bytes, Entry entry, void* argument) {
  TERN_CHECK(getcontext(&context_) == 0);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fibre::begin, 0);
#ifdef TERN_FIBRES_UNDER_ASAN
  // Nobody reads it any more but AddressSanitizer's own swapcontext(), which would take time to
  // call all of the stack sound at each switch, and so hide faults. It is told of switches below.
  context_.uc_stack.ss_size = 0;
#endif
  bottom_ = stack;
  bytes_ = bytes;
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
#ifdef TERN_FIBRES_UNDER_ASAN
  __asan_unpoison_memory_region(stack, bytes);
#endif
}

void Fibre::switch_to(Fibre& next) {
  leaving = this;
  entering = &next;
#ifdef TERN_FIBRES_UNDER_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, next.bottom_, next.bytes_);
#endif
  TERN_CHECK(swapcontext(&context_, &next.context_) == 0);
  arrived();
}

// The program's own stack learns where it lies from the first fibre that it switches to.
void Fibre::arrived() {
#ifdef TERN_FIBRES_UNDER_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (leaving->bottom_ == nullptr) {
    leaving->bottom_ = const_cast<void*>(bottom);
    leaving->bytes_ = bytes;
  }
#endif
}

void Fibre::begin() {
  Fibre* const self = entering;
  self->arrived();
  self->entry_(self->argument_);
  TERN_CHECK(false);  // an entry switches away and is never switched to again
}

Stacks::Stacks(std::size_t count) : count_(count) {
  void* const memory = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TERN_CHECK(memory != MAP_FAILED);
  memory_ = static_cast<std::byte*>(memory);
}

Stacks::~Stacks() { munmap(memory_, count_ * kBytes); }

}  // namespace tern::codec::device::emulation
