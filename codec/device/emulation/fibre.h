#pragma once

#include <ucontext.h>

#include <cstddef>

// One thread of execution with a stack of its own, among which the program switches by itself.
// AddressSanitizer is told of each switch.
namespace tern::codec::device::emulation {

class Fibre {
 public:
  using Entry = void (*)(void* argument);

  Fibre() = default;  // the program's own stack; its first switch_to() makes it one
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  // Begins at `entry`, which must not return, as soon as another switches to it. What ran on the
  // stack before is forgotten.
  void prepare(std::byte* stack, std::size_t bytes, Entry entry, void* argument);

  // Requires: this is the one that runs. Returns when another switches back.
  void switch_to(Fibre& next);

 private:
  static void begin();
  void arrived();

  ucontext_t context_{};
  void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
};

// Stacks for the threads of a block, made once and used again.
class Stacks {
 public:
  static constexpr std::size_t kBytes = std::size_t{128} * 1024;

  explicit Stacks(std::size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::size_t count() const noexcept { return count_; }
  std::byte* stack(std::size_t i) const noexcept { return memory_ + i * kBytes; }

 private:
  std::size_t count_;
  std::byte* memory_;
};

}  // namespace tern::codec::device::emulation
