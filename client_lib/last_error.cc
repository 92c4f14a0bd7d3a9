#include "client_lib/last_error.h"

#include <cstddef>

namespace tern::client_lib {
namespace {

// Holds the longest text that travels (DonePacket, 512) with words of our own before it.
constexpr std::size_t kDetailRoom = 768;
thread_local char detail[kDetailRoom] = {};

}  // namespace

void set_error_detail(std::string_view text) noexcept {
  const std::size_t bytes = text.copy(detail, kDetailRoom - 1);
  detail[bytes] = '\0';
}

const char* error_detail() noexcept { return detail; }

}  // namespace tern::client_lib
