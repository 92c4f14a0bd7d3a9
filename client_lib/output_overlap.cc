#include "client_lib/output_overlap.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tern::client_lib {
namespace {

struct Memory {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t op;
  bool written;
};

// What the rank reads and writes; in place that is one piece.
void add_memory(const OpRequest& request, std::size_t op, std::vector<Memory>& all) {
  const auto piece = [&](const void* memory, std::uint64_t bytes, bool written) -> Memory {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    return {begin, begin + bytes, op, written};
  };
  Memory input = piece(request.input, request.input_bytes(), false);
  Memory output = piece(request.output, request.output_bytes(), true);
  if (output.begin < input.end && input.begin < output.end) {
    output = {std::min(input.begin, output.begin), std::max(input.end, output.end), op, true};
    input.end = input.begin;
  }
  if (input.begin != input.end) all.push_back(input);
  if (output.begin != output.end) all.push_back(output);
}

}  // namespace

// In order of addresses it is enough to remember what reaches furthest, of all and of outputs.
std::optional<std::pair<std::size_t, std::size_t>> find_output_overlap(
    std::span<const OpRequest> requests) {
  std::vector<Memory> all;
  all.reserve(2 * requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) add_memory(requests[i], i, all);
  std::sort(all.begin(), all.end(),
            [](const Memory& a, const Memory& b) { return a.begin < b.begin; });
  const Memory nothing{0, 0, 0, false};
  Memory furthest = nothing;
  Memory furthest_written = nothing;
  for (const Memory& next : all) {
    const Memory& other = next.written ? furthest : furthest_written;
    if (next.begin < other.end) return std::minmax(other.op, next.op);
    if (next.end > furthest.end) furthest = next;
    if (next.written && next.end > furthest_written.end) furthest_written = next;
  }
  return std::nullopt;
}

}  // namespace tern::client_lib
