#pragma once

// What the opaque pointers of tern.h point to, and what every C function does at its two ends.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "client_lib/client.h"
#include "client_lib/include/tern/tern.h"
#include "client_lib/last_error.h"

// Owns the handles of its groups, and those the handles of their tensors. All the lists are guarded
// by the client's handles_mutex.
struct tern_client {
  std::unique_ptr<tern::client_lib::Client> client;
  std::mutex handles_mutex;
  std::vector<std::unique_ptr<tern_group>> groups;
};

struct tern_group {
  tern_client* owner;
  std::shared_ptr<tern::client_lib::GroupState> state;
  std::vector<std::unique_ptr<tern_tensor>> tensors;
  std::vector<std::unique_ptr<tern_push_pull>> push_pulls;
  std::string level;  // of tensors that name none; guarded by the client's handles_mutex
};

struct tern_tensor {
  tern_group* owner;
  std::shared_ptr<tern::client_lib::TensorState> state;
};

struct tern_push_pull {
  tern_group* owner;
  std::uint64_t count;
  tern_reduction reduction;
  std::vector<std::uint64_t> counts;  // of each rank's shard
  bool equal;                         // all of them are: operations give no counts
  tern_tensor* push;
  tern_tensor* pull;
};

namespace tern::client_lib {

// Takes the handle out of the list that owns it; it ends with the result.
template <typename Handle>
std::unique_ptr<Handle> take_handle(std::vector<std::unique_ptr<Handle>>& handles, Handle* handle) {
  const auto found = std::find_if(handles.begin(), handles.end(),
                                  [&](const auto& owned) { return owned.get() == handle; });
  if (found == handles.end()) return nullptr;
  std::unique_ptr<Handle> taken = std::move(*found);
  handles.erase(found);
  return taken;
}

inline tern_status to_status(Errc code) noexcept { return static_cast<tern_status>(code); }

inline tern_status report_error(const Error& error) noexcept {
  set_error_detail(error.text);
  return to_status(error.code);
}

inline tern_status refuse(const char* text) noexcept {
  set_error_detail(text);
  return TERN_ERR_INVALID_ARGUMENT;
}

// Runs the body of a C function: a fresh detail, no exception out.
template <typename Body>
tern_status guarded(Body&& body) noexcept {
  set_error_detail("");
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return TERN_ERR_OUT_OF_MEMORY;
  } catch (...) {
    set_error_detail("an unexpected exception inside libtern");
    return TERN_ERR_INTERNAL;
  }
}

// The same for a function of a client's handle (null is refused by the caller).
template <typename Body>
tern_status guarded(const tern_client& owner, Body&& body) noexcept {
  if (owner.client->forked()) {
    set_error_detail("");
    return TERN_ERR_FORKED;
  }
  return guarded(static_cast<Body&&>(body));
}

// The number behind a C enum, which a program may have filled with any.
template <typename Enum>
std::uint32_t raw(const Enum& value) noexcept {
  static_assert(sizeof(Enum) == sizeof(std::uint32_t) && std::is_enum_v<Enum>);
  std::uint32_t number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

inline bool is_timeout(std::int64_t timeout_ms) noexcept { return timeout_ms >= TERN_FOREVER; }

}  // namespace tern::client_lib
