#pragma once

// What a node tells others of a failure.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "collective/op.h"
#include "wire/op_frames.h"

namespace tern::daemon {

class FailBody {
 public:
  // Of the text as much as the frame has room for.
  explicit FailBody(const collective::Failure& failure) noexcept {
    body_.code = static_cast<std::int32_t>(failure.code);
    body_.rank = failure.about_rank;
    failure.text.copy(body_.text, sizeof(body_.text) - 1);
  }
  // None: the payload makes no sense.
  static std::optional<FailBody> read(std::span<const std::byte> payload) noexcept {
    FailBody read;
    if (payload.size() != sizeof(read.body_)) return std::nullopt;
    std::memcpy(&read.body_, payload.data(), sizeof(read.body_));
    read.body_.text[sizeof(read.body_.text) - 1] = '\0';
    if (read.body_.code <= 0 || read.body_.code >= kErrcCount) return std::nullopt;
    return read;
  }

  // Its text lies here.
  collective::Failure failure() const noexcept {
    return {static_cast<Errc>(body_.code), body_.rank, body_.text};
  }
  std::span<const std::byte> payload() const noexcept {
    return std::as_bytes(std::span(&body_, 1));
  }

 private:
  FailBody() = default;

  wire::OpFailBody body_{};
};

}  // namespace tern::daemon
