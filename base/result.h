#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

#include "base/errc.h"

namespace tern {

// What a failed set-up says: the code for programs, the text for people (cause and remedy). Used on
// cold paths only; lanes use small enums.
struct Error {
  Errc code = Errc::internal;
  std::string text;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

[[nodiscard, gnu::cold]] inline tl::unexpected<Error> fail(Errc code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

// Adds `: strerror(errno)` to the text.
[[nodiscard]] tl::unexpected<Error> fail_errno(Errc code, std::string text, int error_number);

}  // namespace tern
