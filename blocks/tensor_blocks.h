#pragma once

// A tensor whose blocks are encoded and decoded in this process, on its processor.

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "blocks/contributions.h"
#include "blocks/layout.h"
#include "blocks/results.h"
#include "blocks/state_part.h"
#include "client_lib/include/tern/tern.h"

namespace tern::blocks {

// Thread: one at a time. Not after the client is disconnected, but for the destructor.
class TensorBlocks {
 public:
  // Takes slots out of the client's arena, and what the daemon has kept of the tensor's state.
  static Result<std::unique_ptr<TensorBlocks>> create(tern_client* client, tern_group* group,
                                                      tern_tensor* tensor);
  // Without a release() what is owed is lost.
  ~TensorBlocks();
  TensorBlocks(const TensorBlocks&) = delete;
  TensorBlocks& operator=(const TensorBlocks&) = delete;

  struct Operation {
    const std::byte* input = nullptr;  // the tensor's elements
    std::byte* output = nullptr;       // perhaps the same memory
    Reduction reduction = Reduction::sum;
    std::int32_t priority = 0;
    float prescale = 1.0f;
    float state_scale = 1.0f;
  };
  // Encodes and submits. would_block: one is under way.
  Status all_reduce(const Operation& operation);
  // The end of the operation, its results decoded; timeout: it goes on.
  Status wait(std::int64_t timeout_ms);
  bool is_under_way() const noexcept { return ticket_ != 0; }
  std::uint64_t elements() const noexcept { return layout_.count(); }

  // The last call: cancels what is under way, gives the slots back, and hands the residual to the
  // daemon, which keeps it for the next declaration. The error is of that: it is lost.
  Status release();

  // This node's part of the codec state, and the state out of parts of any layout. would_block: an
  // operation is under way.
  Result<StatePart> export_state();
  Status import_state(std::span<const void* const> parts, std::span<const std::uint64_t> bytes);

 private:
  // What libtern knows it by. Owned by the program.
  struct Handles {
    tern_client* client;
    tern_group* group;
    tern_tensor* tensor;
  };

  TensorBlocks(const Handles& handles, const Layout& layout, const codec::Recipe& recipe)
      : handles_(handles), layout_(layout), contributions_(layout_, recipe), results_(layout_) {}

  Status check(const Operation& operation) const;
  // Ends what is under way, and frees the slots. Allocates nothing.
  void give_back() noexcept;
  // In this process anew what the daemon has.
  Status take_state();

  Handles handles_;
  Layout layout_;
  Contributions contributions_;
  Results results_;
  std::span<std::byte> slots_;  // in the arena
  tern_ticket ticket_ = 0;      // 0: nothing is under way
  std::byte* output_ = nullptr;
};

}  // namespace tern::blocks
