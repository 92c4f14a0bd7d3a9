// Foreign parts of a checkpoint: what is refused changes nothing, what is taken is finite, and what
// is taken as it is can be exported again byte for byte. The parts lie in the client's memory, so
// they may change between the check and the use.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "daemon/tensor/codec_state.h"
#include "daemon/tensor/state_part.h"
#include "fuzz_input.h"

using namespace tern;

namespace {

// A tensor of one node, by six bytes.
struct Target {
  codec::Recipe recipe;
  daemon::CodecState::Shape shape;
  std::uint64_t spread = 0;

  std::uint32_t chunks() const {
    return static_cast<std::uint32_t>((shape.count + shape.chunk_elements - 1) /
                                      shape.chunk_elements);
  }
};

Target take_target(fuzz::Bytes& bytes) {
  static constexpr const char* kRecipes[] = {"none(raw)", "ef(int:bits=4)", "diana(natural)",
                                             "ef21(topk:k=1)"};
  Target target;
  TERN_CHECK(codec::parse_recipe_quick(kRecipes[bytes.take<std::uint8_t>() % std::size(kRecipes)],
                                       target.recipe));
  target.shape.nodes = 1u + bytes.take<std::uint8_t>() % 5u;
  target.shape.self = bytes.take<std::uint8_t>() % target.shape.nodes;
  target.shape.count = 1u + bytes.take<std::uint8_t>() % 64u;
  target.shape.chunk_elements = 1u + bytes.take<std::uint8_t>() % 32u;
  target.spread = bytes.take<std::uint8_t>();
  return target;
}

daemon::CodecState state_of(const Target& target) {
  daemon::CodecState state;
  TERN_CHECK(state.allocate(target.recipe, target.shape));
  return state;
}

std::vector<std::byte> exported(const Target& target, const daemon::StatePart& part,
                                daemon::CodecState& state) {
  std::vector<std::byte> bytes(part.bytes());
  std::memcpy(bytes.data(), &part.header(), sizeof(daemon::StatePartHeader));
  for (std::uint32_t chunk = 0; chunk < target.chunks() && !state.empty(); ++chunk) {
    part.export_chunk(state, chunk, bytes);
  }
  return bytes;
}

void expect_finite(const Target& target, const daemon::CodecState& state) {
  for (std::uint64_t i = 0; i < target.shape.count && !state.empty(); ++i) {
    TERN_CHECK(std::isfinite(*state.sender(i)));
  }
}

// What is stored of a tensor, of all nodes.
struct Stored {
  std::span<const std::byte> parts;
  std::span<const std::byte> own;  // of the same layout: this node's among them
  bool same_layout = false;
};

// Every chunk of the tensor, by parts that have been checked or that have changed since.
bool import_all(const Target& target, const daemon::StatePart& part, const Stored& stored,
                daemon::CodecState& state) {
  bool sound = true;
  for (std::uint32_t chunk = 0; chunk < target.chunks(); ++chunk) {
    sound = (stored.same_layout ? part.import_chunk(state, chunk, stored.own)
                                : part.refold_chunk(state, chunk, stored.parts)) &&
            sound;
  }
  // As of operations with one leg, whose parts are as long.
  if (!stored.same_layout) {
    sound = part.refold_elements(state, {0, target.shape.count}, stored.parts, true) && sound;
  }
  expect_finite(target, state);
  return sound;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes(data, size);
  const Target target = take_target(bytes);
  const auto change = bytes.take<std::uint16_t>();  // which byte changes after the check
  const auto rest = std::as_bytes(bytes.rest());
  std::vector<std::byte> parts(rest.begin(), rest.end());
  daemon::CodecState state = state_of(target);
  const daemon::StatePart part(state.empty() ? codec::Memory::none : target.recipe.memory,
                               state.alpha(), target.shape, target.spread);
  bool same_layout = false;
  std::uint64_t own = 0;
  const auto checked = part.check(parts, same_layout, own);
  if (!checked) {
    TERN_CHECK(!checked.error().text.empty());
    return 0;
  }
  if (state.empty()) return 0;
  // As the daemon cuts it out.
  const auto mine = [&] {
    return std::span<const std::byte>(parts).subspan(same_layout ? own : 0,
                                                     same_layout ? part.bytes() : 0);
  };
  const Stored stored{parts, mine(), same_layout};
  if (import_all(target, part, stored, state) && same_layout) {
    const auto again = exported(target, part, state);
    constexpr std::size_t kHeader = sizeof(daemon::StatePartHeader);
    TERN_CHECK(std::equal(again.begin() + kHeader, again.end(), mine().begin() + kHeader));
  }
  parts[change % parts.size()] ^= std::byte{0x81};
  import_all(target, part, stored, state);
  return 0;
}
