#include "cuda/last_error.h"

#include <algorithm>
#include <array>

namespace tern::cuda {
namespace {

std::array<char, 512>& detail() noexcept {
  thread_local std::array<char, 512> text{};
  return text;
}

}  // namespace

void set_error_detail(std::string_view text) noexcept {
  std::array<char, 512>& out = detail();
  const std::size_t bytes = std::min(text.size(), out.size() - 1);
  std::copy_n(text.begin(), bytes, out.begin());
  out[bytes] = '\0';
}

const char* error_detail() noexcept { return detail().data(); }

tern_status report(const Error& error) noexcept {
  set_error_detail(error.text);
  return static_cast<tern_status>(error.code);
}

tern_status report(const Status& status) noexcept {
  return status ? TERN_OK : report(status.error());
}

Error error_of(tern_status status) {
  const std::string_view said = tern_error_detail();
  return {static_cast<Errc>(status), std::string(said.empty() ? tern_strerror(status) : said)};
}

}  // namespace tern::cuda
