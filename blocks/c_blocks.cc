// The C functions of tern/blocks.h.

#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/sized_struct.h"
#include "blocks/include/tern/blocks.h"
#include "blocks/tensor_blocks.h"

struct tern_blocks {
  std::unique_ptr<tern::blocks::TensorBlocks> tensor;
};

namespace tern {

template <>
inline constexpr std::size_t kFirstBytes<tern_op> = 96;

}  // namespace tern

namespace {

using tern::Status;
using tern::blocks::TensorBlocks;

std::string& detail() noexcept {
  thread_local std::string text;
  return text;
}

tern_status refuse(const char* text) {
  detail() = text;
  return TERN_ERR_INVALID_ARGUMENT;
}

tern_status report(const Status& status) {
  if (status) return TERN_OK;
  detail() = status.error().text;
  return static_cast<tern_status>(status.error().code);
}

// A fresh detail, no exception out.
template <typename Body>
tern_status guarded(Body&& body) noexcept {
  try {
    detail().clear();
    return body();
  } catch (const std::bad_alloc&) {
    return TERN_ERR_OUT_OF_MEMORY;
  } catch (...) {
    return TERN_ERR_INTERNAL;
  }
}

// Null, or what of an operation blocks do not have.
const char* objection_to(const tern_op& op) noexcept {
  if (op.recipe != nullptr) return "an operation with blocks has no recipe of its own";
  if (op.wait_event != 0 || op.signal_event != 0 || op.counts != nullptr ||
      op.receive_counts != nullptr || op.received != nullptr || op.reserved != 0) {
    return "events, counts, received and reserved are not of an all_reduce";
  }
  if (static_cast<unsigned>(op.reduction) > TERN_XOR) {
    return "reduction is not one of tern_reduction";
  }
  return std::isfinite(op.prescale) && std::isfinite(op.state_scale)
             ? nullptr
             : "prescale and state_scale must be finite";
}

}  // namespace

const char* tern_blocks_error_detail(void) { return detail().c_str(); }

tern_status tern_blocks_create(tern_client* client, tern_group* group, tern_tensor* tensor,
                               tern_blocks** blocks) {
  return guarded([&]() -> tern_status {
    if (client == nullptr || group == nullptr || tensor == nullptr || blocks == nullptr) {
      return refuse("client, group, tensor or blocks is NULL");
    }
    *blocks = nullptr;
    auto made = TensorBlocks::create(client, group, tensor);
    if (!made) return report(tl::unexpected(made.error()));
    *blocks = new tern_blocks{std::move(*made)};
    return TERN_OK;
  });
}

tern_status tern_blocks_release(tern_blocks* blocks) {
  if (blocks == nullptr) return TERN_OK;
  // It ends in any case; the status is of the residual.
  const std::unique_ptr<tern_blocks> ended(blocks);
  return guarded([&] { return report(ended->tensor->release()); });
}

tern_status tern_blocks_all_reduce(tern_blocks* blocks, const tern_op* passed) {
  return guarded([&]() -> tern_status {
    if (blocks == nullptr || passed == nullptr) return refuse("blocks or op is NULL");
    tern_op op;
    if (const Status read = tern::read_sized(passed, "op", op); !read) return report(read);
    if (const char* problem = objection_to(op)) return refuse(problem);
    if (op.count != 0 && op.count != blocks->tensor->elements()) {
      return refuse("count is neither 0 nor the tensor's declared count");
    }
    TensorBlocks::Operation operation;
    operation.input = static_cast<const std::byte*>(op.input != nullptr ? op.input : op.output);
    operation.output =
        static_cast<std::byte*>(op.output != nullptr ? op.output : const_cast<void*>(op.input));
    operation.reduction = static_cast<tern::Reduction>(op.reduction);
    operation.priority = op.priority;
    if (op.prescale != 0.0f) operation.prescale = op.prescale;
    if (op.state_scale != 0.0f) operation.state_scale = op.state_scale;
    return report(blocks->tensor->all_reduce(operation));
  });
}

tern_status tern_blocks_wait(tern_blocks* blocks, int64_t timeout_ms) {
  return guarded([&]() -> tern_status {
    if (blocks == nullptr) return refuse("blocks is NULL");
    if (timeout_ms < TERN_FOREVER) return refuse("timeout_ms must be -1 or more");
    return report(blocks->tensor->wait(timeout_ms));
  });
}

tern_status tern_blocks_export_state(tern_blocks* blocks, void* part, uint64_t capacity,
                                     uint64_t* bytes) {
  return guarded([&]() -> tern_status {
    if (blocks == nullptr || part == nullptr || bytes == nullptr) {
      return refuse("blocks, part or bytes is NULL");
    }
    const auto state = blocks->tensor->export_state();
    if (!state) return report(tl::unexpected(state.error()));
    if (state->bytes().size() > capacity) {
      return refuse("capacity is too small; tern_tensor_state_bytes tells what is needed");
    }
    *bytes = state->bytes().size();
    std::memcpy(part, state->bytes().data(), *bytes);
    return TERN_OK;
  });
}

tern_status tern_blocks_import_state(tern_blocks* blocks, const void* const* parts,
                                     const uint64_t* part_bytes, uint32_t count) {
  return guarded([&]() -> tern_status {
    if (blocks == nullptr || parts == nullptr || part_bytes == nullptr || count == 0) {
      return refuse("blocks, parts or part_bytes is NULL, or count is 0");
    }
    return report(blocks->tensor->import_state({parts, count}, {part_bytes, count}));
  });
}
