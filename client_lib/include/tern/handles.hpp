// Tern for C++20: failures, types, and the handles of tickets, tensors and servers on the ranks.
// Included by tern.hpp.
#ifndef TERN_HANDLES_HPP
#define TERN_HANDLES_HPP

#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tern.h"

namespace tern {

// Any failure: the code for programs, and a text that joins its meaning with the detail.
class Failure : public std::runtime_error {
 public:
  explicit Failure(tern_status status) : std::runtime_error(text_of(status)), status_(status) {}
  // What these handles see before the library is asked.
  Failure(tern_status status, const std::string& detail)
      : std::runtime_error(std::string(tern_strerror(status)) + ": " + detail), status_(status) {}
  tern_status status() const noexcept { return status_; }

 private:
  static std::string text_of(tern_status status) {
    std::string text = tern_strerror(status);
    if (const char* detail = tern_error_detail(); *detail != '\0') text.append(": ").append(detail);
    return text;
  }
  tern_status status_;
};

inline void throw_if_failed(tern_status status) {
  if (status != TERN_OK) throw Failure(status);
}

// The tern_dtype of a C++ type. C++20 has no types for floats of 16 and 8 bits: use tern_op with
// TERN_F16, TERN_BF16 and the like.
template <typename T>
constexpr tern_dtype dtype_of() noexcept {
  if constexpr (std::is_same_v<T, float>)
    return TERN_F32;
  else if constexpr (std::is_same_v<T, double>)
    return TERN_F64;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return TERN_I64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return TERN_I32;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return TERN_I16;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return TERN_I8;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return TERN_U64;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return TERN_U32;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return TERN_U16;
  else if constexpr (std::is_same_v<T, bool>)
    return TERN_BOOL;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return TERN_C64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return TERN_C128;
  else {
    static_assert(std::is_same_v<T, std::uint8_t>, "no tern_dtype for this type");
    return TERN_U8;
  }
}

namespace detail {

using ClientHandle = std::shared_ptr<tern_client>;

struct GroupOwner {
  GroupOwner(ClientHandle c, tern_group* g) noexcept : client(std::move(c)), group(g) {}
  GroupOwner(const GroupOwner&) = delete;
  GroupOwner& operator=(const GroupOwner&) = delete;
  ~GroupOwner() { (void)tern_group_leave(group); }
  ClientHandle client;
  tern_group* group;
};
using GroupHandle = std::shared_ptr<GroupOwner>;

// What the spans of operations must agree with.
struct Declared {
  std::uint64_t count;
  tern_dtype dtype;
};

struct TensorOwner {
  TensorOwner(GroupHandle g, tern_tensor* t, const tern_tensor_options& options) noexcept
      : group(std::move(g)),
        tensor(t),
        declared{options.count, options.dtype},
        has_blocks(options.client_blocks != 0) {}
  TensorOwner(const TensorOwner&) = delete;
  TensorOwner& operator=(const TensorOwner&) = delete;
  ~TensorOwner() { (void)tern_tensor_release(tensor); }
  GroupHandle group;
  tern_tensor* tensor;
  Declared declared;
  bool has_blocks;
};

struct PushPullOwner {
  PushPullOwner(GroupHandle g, tern_push_pull* p, const tern_push_pull_options& options) noexcept
      : group(std::move(g)), push_pull(p), declared{options.count, options.dtype} {}
  PushPullOwner(const PushPullOwner&) = delete;
  PushPullOwner& operator=(const PushPullOwner&) = delete;
  ~PushPullOwner() { (void)tern_push_pull_release(push_pull); }
  GroupHandle group;
  tern_push_pull* push_pull;
  Declared declared;
  std::uint64_t own_count = 0;  // of this rank's shard
};

// ---- The library sees no lengths of spans, and these throw where one does not fit.

[[noreturn]] inline void refuse(const std::string& why) {
  throw Failure(TERN_ERR_INVALID_ARGUMENT, why);
}

inline void require_room(const char* what, std::uint64_t has, std::uint64_t used) {
  if (has >= used) return;
  refuse("the span of the " + std::string(what) + " has " + std::to_string(has) +
         " elements, and the operation uses " + std::to_string(used) + ": give a longer one");
}

inline std::string name_of(tern_dtype dtype) {
  static constexpr const char* kNames[] = {"f32", "f64",  "f16", "bf16", "i64",      "i32",
                                           "u8",  "bool", "i8",  "i16",  "fp8_e4m3", "fp8_e5m2",
                                           "c64", "c128", "u16", "u32",  "u64"};
  const auto number = static_cast<std::size_t>(dtype);
  return number < std::size(kNames) ? kNames[number] : "type " + std::to_string(number);
}

// The bits of floats for which C++20 has no type lie in unsigned integers of their width.
constexpr tern_dtype bits_of(tern_dtype dtype) noexcept {
  if (dtype == TERN_F16 || dtype == TERN_BF16) return TERN_U16;
  if (dtype == TERN_FP8_E4M3 || dtype == TERN_FP8_E5M2) return TERN_U8;
  return dtype;
}

template <typename T>
void require_dtype(const Declared& declared) {
  if (dtype_of<T>() == declared.dtype || dtype_of<T>() == bits_of(declared.dtype)) return;
  refuse("the spans have elements of " + name_of(dtype_of<T>()) + ", and " +
         name_of(declared.dtype) + " was declared: give spans of the declared type");
}

}  // namespace detail

// One operation in flight. The operation uses its memory until it has ended. If nobody has waited
// for the ticket, its destructor cancels the operation and waits for its end, at most for the
// group's op_timeout.
class [[nodiscard]] Ticket {
 public:
  Ticket(detail::GroupHandle group, tern_ticket ticket) noexcept
      : group_(std::move(group)), ticket_(ticket) {}
  Ticket(Ticket&& other) noexcept
      : group_(std::move(other.group_)), ticket_(std::exchange(other.ticket_, 0)) {}
  Ticket& operator=(Ticket&& other) noexcept {
    if (this == &other) return *this;
    finish();
    group_ = std::move(other.group_);
    ticket_ = std::exchange(other.ticket_, 0);
    return *this;
  }
  ~Ticket() { finish(); }

  // Returns when the operation has succeeded; throws Failure if it failed.
  void wait() { (void)wait_for(TERN_FOREVER); }

  // Whether the operation has succeeded within timeout_ms (0: now). Throws Failure if it failed.
  bool wait_for(std::int64_t timeout_ms) {
    if (ticket_ == 0) return true;
    const tern_status status = tern_wait(group_->client.get(), ticket_, timeout_ms);
    if (status == TERN_ERR_TIMEOUT) return false;
    ticket_ = 0;
    throw_if_failed(status);
    return true;
  }

  void cancel() {
    if (ticket_ != 0) throw_if_failed(tern_cancel(group_->client.get(), ticket_));
  }

  // For tern_wait_any; 0 when the operation has ended.
  tern_ticket get() const noexcept { return ticket_; }

 private:
  void finish() noexcept {
    if (ticket_ == 0) return;
    (void)tern_cancel(group_->client.get(), ticket_);
    (void)tern_wait(group_->client.get(), ticket_, TERN_FOREVER);
    ticket_ = 0;
  }

  detail::GroupHandle group_;
  tern_ticket ticket_;
};

class Tensor {
 public:
  explicit Tensor(std::shared_ptr<detail::TensorOwner> owner) noexcept : owner_(std::move(owner)) {}

  // The state that the recipe keeps of the tensor on this node, for a checkpoint
  // (tern_tensor_export_state).
  std::vector<std::byte> export_state() const {
    std::uint64_t bytes = 0;
    throw_if_failed(tern_tensor_state_bytes(get(), &bytes));
    std::vector<std::byte> part(bytes);
    throw_if_failed(tern_tensor_export_state(get(), part.data(), part.size(), &bytes));
    return part;
  }

  // `parts`: this node's own part alone, or the parts of all nodes (tern_tensor_import_state).
  void import_state(std::span<const std::vector<std::byte>> parts) const {
    std::vector<const void*> data;
    std::vector<std::uint64_t> bytes;
    for (const auto& part : parts) {
      data.push_back(part.data());
      bytes.push_back(part.size());
    }
    throw_if_failed(tern_tensor_import_state(get(), data.data(), bytes.data(),
                                             static_cast<std::uint32_t>(parts.size())));
  }

  tern_tensor_stats stats() const {
    tern_tensor_stats stats = {};
    stats.struct_size = sizeof stats;
    throw_if_failed(tern_tensor_get_stats(get(), &stats));
    return stats;
  }
  tern_tensor* get() const noexcept { return owner_->tensor; }

  // Throws unless the span has the declared elements: so many, and of this type.
  template <typename T>
  void require_elements(std::span<T> values) const {
    const detail::Declared& declared = owner_->declared;
    detail::require_dtype<T>(declared);
    if (values.size() == declared.count) return;
    detail::refuse("the span has " + std::to_string(values.size()) +
                   " elements, and the tensor was declared with " + std::to_string(declared.count) +
                   ": give a span of so many");
  }
  // Throws too if the tensor has client_blocks: its operations use slots, which may be longer.
  template <typename T>
  void require_operands(std::span<T> values) const {
    if (owner_->has_blocks) {
      detail::refuse("the tensor has client_blocks: use tern::Blocks, or a tern_op on its slots");
    }
    require_elements(values);
  }

 private:
  std::shared_ptr<detail::TensorOwner> owner_;
};

// A parameter server on the ranks: gradients are pushed to the owners of the model's shards, and
// differences of the model pulled from them (tern_push_pull_declare says what a step is).
class PushPull {
 public:
  explicit PushPull(std::shared_ptr<detail::PushPullOwner> owner) noexcept
      : owner_(std::move(owner)) {}

  struct Shard {
    std::uint64_t begin = 0;
    std::uint64_t count = 0;
  };
  Shard shard(std::int32_t rank) const {
    Shard shard;
    throw_if_failed(tern_push_pull_get_shard(get(), rank, &shard.begin, &shard.count));
    return shard;
  }

  // `shard` becomes the reduction of all ranks' gradients, of this rank's own shard. It may be its
  // own place in the gradient. A rank that owns nothing gives an empty one.
  template <typename T>
  Ticket push(std::span<const T> gradient, std::span<T> shard) {
    detail::require_dtype<T>(owner_->declared);
    detail::require_room("gradient", gradient.size(), owner_->declared.count);
    detail::require_room("shard", shard.size(), owner_->own_count);
    tern_ticket ticket = 0;
    throw_if_failed(tern_push(get(), gradient.data(), shard.data(), &ticket));
    return Ticket(owner_->group, ticket);
  }
  // `all` becomes the differences of all shards. The difference, which is this rank's own shard's,
  // may be its own place there. A rank that owns nothing gives an empty one.
  template <typename T>
  Ticket pull(std::span<const T> difference, std::span<T> all) {
    detail::require_dtype<T>(owner_->declared);
    detail::require_room("difference", difference.size(), owner_->own_count);
    detail::require_room("differences of all shards", all.size(), owner_->declared.count);
    tern_ticket ticket = 0;
    throw_if_failed(tern_pull(get(), difference.data(), all.data(), &ticket));
    return Ticket(owner_->group, ticket);
  }

  tern_tensor_stats push_stats() const { return stats_of(tensors().first); }
  tern_tensor_stats pull_stats() const { return stats_of(tensors().second); }
  tern_push_pull* get() const noexcept { return owner_->push_pull; }

 private:
  std::pair<tern_tensor*, tern_tensor*> tensors() const {
    std::pair<tern_tensor*, tern_tensor*> both{};
    throw_if_failed(tern_push_pull_get_tensors(get(), &both.first, &both.second));
    return both;
  }
  static tern_tensor_stats stats_of(tern_tensor* tensor) {
    tern_tensor_stats stats = TERN_TENSOR_STATS_INIT;
    throw_if_failed(tern_tensor_get_stats(tensor, &stats));
    return stats;
  }

  std::shared_ptr<detail::PushPullOwner> owner_;
};

}  // namespace tern

#endif  // TERN_HANDLES_HPP
