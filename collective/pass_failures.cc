#include "collective/pass_failures.h"

#include <cstdio>

namespace tern::collective {

void PassOutcome::set(const Failure& failure) noexcept {
  code = failure.code;
  about_rank = failure.about_rank;
  const std::size_t bytes = failure.text.copy(text, sizeof(text) - 1);
  text[bytes] = '\0';
}

Failure failure_of(const Pass& pass, const Failure& why, PassText& text) {
  const Envelope& what = pass.what.envelope;
  const int length = static_cast<int>(why.text.size());
  if (!pass.what.sends && what.source == kAnySource) {
    std::snprintf(text, sizeof(text), "recv from any rank, tag %u: %.*s", what.tag, length,
                  why.text.data());
  } else {
    std::snprintf(
        text, sizeof(text), "%s rank %u, tag %u: %.*s", pass.what.sends ? "send to" : "recv from",
        pass.what.sends ? what.destination : what.source, what.tag, length, why.text.data());
  }
  return {why.code, why.about_rank, text};
}

Failure timeout_of(const Pass& pass, std::uint64_t timeout_ns, PassText& text) {
  const Envelope& what = pass.what.envelope;
  const auto ms = static_cast<unsigned long long>(timeout_ns / 1'000'000);
  if (pass.what.sends) {
    std::snprintf(text, sizeof(text), "after %llu ms rank %u has no recv from rank %u with tag %u",
                  ms, what.destination, what.source, what.tag);
    return {Errc::op_timeout, what.destination, text};
  }
  if (what.source == kAnySource) {
    std::snprintf(text, sizeof(text), "after %llu ms no rank has sent to rank %u with tag %u", ms,
                  what.destination, what.tag);
    return {Errc::op_timeout, kNoRank, text};
  }
  std::snprintf(text, sizeof(text), "after %llu ms rank %u has not sent to rank %u with tag %u", ms,
                what.source, what.destination, what.tag);
  return {Errc::op_timeout, what.source, text};
}

Failure stall_of(const Pass& pass, std::uint64_t timeout_ns, PassText& text) {
  const Envelope& what = pass.what.envelope;
  const auto ms = static_cast<unsigned long long>(timeout_ns / 1'000'000);
  const std::uint32_t other = pass.what.sends ? what.destination : pass.source;
  std::snprintf(text, sizeof(text), "for %llu ms nothing has moved %s rank %u with tag %u", ms,
                pass.what.sends ? "to" : "from", other, what.tag);
  return {Errc::op_timeout, other, text};
}

// Errc::ok: what is sent fits the recv.
Failure disagreement(const Envelope& sent, const Envelope& room, PassText& text) {
  if (sent.dtype != room.dtype) {
    std::snprintf(text, sizeof(text), "rank %u sends %s to rank %u with tag %u, which receives %s",
                  sent.source, dtype_name(sent.dtype).data(), sent.destination, sent.tag,
                  dtype_name(room.dtype).data());
    return {Errc::mismatch, sent.source, text};
  }
  if (sent.count > room.count) {
    std::snprintf(text, sizeof(text),
                  "rank %u sends %llu elements to rank %u with tag %u, which has room for %llu",
                  sent.source, static_cast<unsigned long long>(sent.count), sent.destination,
                  sent.tag, static_cast<unsigned long long>(room.count));
    return {Errc::mismatch, sent.destination, text};
  }
  if (sent.lossy && !room.lossy) {
    std::snprintf(
        text, sizeof(text),
        "rank %u sends to rank %u with tag %u by a recipe that loses values, and the recv "
        "has none: give both one, or neither",
        sent.source, sent.destination, sent.tag);
    return {Errc::mismatch, sent.source, text};
  }
  return kDelivered;
}

Failure damage_by(std::uint32_t node, PassText& text) {
  std::snprintf(text, sizeof(text), "a payload from node %u did not match its checksum", node);
  return {Errc::corrupt_data, kNoRank, text};
}

}  // namespace tern::collective
