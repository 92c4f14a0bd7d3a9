// tern/blocks.h for C++20: header only, errors are exceptions (tern::Failure).
#pragma once

#include <tern/blocks.h>

#include <span>
#include <tern/tern.hpp>
#include <utility>
#include <vector>

namespace tern {

// Blocks of one tensor, encoded and decoded on this processor. Ends before the tensor's group. For
// one thread at a time.
class Blocks {
 public:
  // The tensor was declared with client_blocks = 1.
  Blocks(const Client& client, const Group& group, const Tensor& tensor) : tensor_(tensor) {
    check(tern_blocks_create(client.get(), group.get(), tensor.get(), &blocks_));
  }
  Blocks(Blocks&& other) noexcept
      : tensor_(std::move(other.tensor_)), blocks_(std::exchange(other.blocks_, nullptr)) {}
  Blocks& operator=(Blocks&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~Blocks() { (void)tern_blocks_release(blocks_); }

  const Tensor& tensor() const noexcept { return tensor_; }

  // In place. The values stay valid until wait() has returned true, or thrown.
  template <typename T>
  void all_reduce(std::span<T> values, tern_reduction reduction = TERN_SUM) {
    tensor_.require_elements(values);
    tern_op op = TERN_OP_INIT;
    op.input = op.output = values.data();
    op.reduction = reduction;
    all_reduce(op);
  }
  void all_reduce(const tern_op& op) { check(tern_blocks_all_reduce(blocks_, &op)); }
  // False: the time is over, and the operation goes on.
  bool wait(std::int64_t timeout_ms = TERN_FOREVER) {
    const tern_status status = tern_blocks_wait(blocks_, timeout_ms);
    if (status == TERN_ERR_TIMEOUT) return false;
    check(status);
    return true;
  }

  // As Tensor's.
  std::vector<std::byte> export_state() {
    std::uint64_t bytes = 0;
    throw_if_failed(tern_tensor_state_bytes(tensor_.get(), &bytes));
    std::vector<std::byte> part(bytes);
    check(tern_blocks_export_state(blocks_, part.data(), part.size(), &bytes));
    return part;
  }
  void import_state(std::span<const std::vector<std::byte>> parts) {
    std::vector<const void*> data;
    std::vector<std::uint64_t> bytes;
    for (const auto& part : parts) {
      data.push_back(part.data());
      bytes.push_back(part.size());
    }
    check(tern_blocks_import_state(blocks_, data.data(), bytes.data(),
                                   static_cast<std::uint32_t>(parts.size())));
  }

 private:
  static void check(tern_status status) {
    if (status != TERN_OK) throw Failure(status, tern_blocks_error_detail());
  }

  Tensor tensor_;
  tern_blocks* blocks_ = nullptr;
};

}  // namespace tern
