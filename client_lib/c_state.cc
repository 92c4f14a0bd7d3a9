// Codec state for checkpoints, as C sees it.

#include <span>
#include <vector>

#include "client_lib/handles.h"

using namespace tern::client_lib;

tern_status tern_tensor_state_bytes(tern_tensor* tensor, uint64_t* bytes) {
  if (tensor == nullptr || bytes == nullptr) return refuse("tensor or bytes is NULL");
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    const auto answer = tensor->owner->owner->client->state_bytes(*tensor->state);
    if (!answer) return report_error(answer.error());
    *bytes = *answer;
    return TERN_OK;
  });
}

tern_status tern_tensor_export_state(tern_tensor* tensor, void* part, uint64_t capacity,
                                     uint64_t* bytes) {
  if (tensor == nullptr || part == nullptr || bytes == nullptr) {
    return refuse("tensor, part or bytes is NULL");
  }
  if (capacity == 0) return refuse("capacity is 0; tern_tensor_state_bytes tells what is needed");
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    const auto answer = tensor->owner->owner->client->export_state(
        *tensor->state, {static_cast<std::byte*>(part), static_cast<std::size_t>(capacity)});
    if (!answer) return report_error(answer.error());
    *bytes = *answer;
    return TERN_OK;
  });
}

tern_status tern_tensor_import_state(tern_tensor* tensor, const void* const* parts,
                                     const uint64_t* part_bytes, uint32_t count) {
  if (tensor == nullptr || parts == nullptr || part_bytes == nullptr || count == 0) {
    return refuse("tensor, parts or part_bytes is NULL, or count is 0");
  }
  return guarded(*tensor->owner->owner, [&]() -> tern_status {
    std::vector<std::span<const std::byte>> spans;
    for (uint32_t i = 0; i < count; ++i) {
      if (parts[i] == nullptr || part_bytes[i] == 0) return refuse("a part is empty");
      spans.emplace_back(static_cast<const std::byte*>(parts[i]),
                         static_cast<std::size_t>(part_bytes[i]));
    }
    const auto done = tensor->owner->owner->client->import_state(*tensor->state, spans);
    return done ? TERN_OK : report_error(done.error());
  });
}
