#pragma once

// The codec states of a tensor's nodes, with values that tell all places apart, and their parts.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tensor/state_part.h"

namespace tern::daemon::state_part_test {

using Bytes = std::vector<std::byte>;

inline codec::Recipe recipe_of(const char* text) {
  codec::Recipe recipe;
  EXPECT_TRUE(codec::parse_recipe_quick(text, recipe)) << text;
  return recipe;
}

struct Layout {
  const char* recipe = "ef(3lc:s=1)";
  std::uint64_t count = 10;
  std::uint64_t chunk_elements = 4;
  std::uint32_t nodes = 2;
  std::uint64_t spread = 0;
  bool eager = false;
  float alpha = 1.0f;

  std::uint32_t chunks() const {
    return static_cast<std::uint32_t>((count + chunk_elements - 1) / chunk_elements);
  }
  std::uint32_t owner(std::uint64_t chunk) const {
    return static_cast<std::uint32_t>((chunk + spread) % nodes);
  }
  std::uint32_t owner_of_element(std::uint64_t element) const {
    return owner(element / chunk_elements);
  }
  CodecState::Shape shape(std::uint32_t self) const {
    return {.count = count,
            .chunk_elements = chunk_elements,
            .nodes = nodes,
            .self = self,
            .eager = eager};
  }
  StatePart part(std::uint32_t self) const {
    return {recipe_of(recipe).memory, alpha, shape(self), spread};
  }
};

// A part's bytes with its header, as who exports writes it.
inline Bytes room_for(const StatePart& part) {
  Bytes bytes(part.bytes());
  std::memcpy(bytes.data(), &part.header(), sizeof part.header());
  return bytes;
}

inline StatePartHeader header_in(std::span<const std::byte> bytes) {
  StatePartHeader header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

inline void put_header(Bytes& bytes, const StatePartHeader& header) {
  std::memcpy(bytes.data(), &header, sizeof header);
}

inline Bytes joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Of a part with error feedback.
inline void put_residual(Bytes& part, std::uint64_t element, float value) {
  std::memcpy(part.data() + sizeof(StatePartHeader) + element * sizeof(float), &value,
              sizeof value);
}

struct Node {
  Node(const Layout& of, std::uint32_t self) : layout(of), number(self), part(of.part(self)) {
    EXPECT_TRUE(state.allocate(recipe_of(of.recipe), of.shape(self)));
  }

  void set_residuals(float first) {
    for (std::uint64_t i = 0; i < layout.count; ++i) {
      state.sender(0)[i] = first + static_cast<float>(i);
    }
  }
  std::vector<float> residuals() const { return {state.sender(0), state.sender(0) + layout.count}; }
  // Calls use(chunk, node, first element, elements) for each stream that comes to this node.
  template <typename Use>
  void for_each_stream(Use use) const {
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const std::uint64_t begin = chunk * layout.chunk_elements;
      const std::uint64_t size = std::min(layout.chunk_elements, layout.count - begin);
      const std::uint32_t owner = layout.owner(chunk);
      for (std::uint32_t from = 0; from < layout.nodes; ++from) {
        if (from == number || (owner != number && from != owner)) continue;
        use(chunk, from, begin, size);
      }
    }
  }
  // Sender and streams, all of them different.
  void set_streams() {
    set_residuals(0.5f);
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      state.sender_step(chunk) = 1000 + chunk;
    }
    for_each_stream([this](auto chunk, auto from, auto begin, auto size) {
      state.receiver_step(from, chunk) = 2000 + 100 * from + chunk;
      float* const shift = state.stream(from, chunk, begin, 1.0f).shift;
      for (std::uint64_t i = 0; i < size; ++i) {
        shift[i] = static_cast<float>(1000 * (from + 1) + begin + i);
      }
    });
  }
  // All that the part is about: steps, and floats.
  std::pair<std::vector<std::uint64_t>, std::vector<float>> streams() {
    std::pair<std::vector<std::uint64_t>, std::vector<float>> all;
    all.second = residuals();
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      all.first.push_back(state.sender_step(chunk));
    }
    for_each_stream([this, &all](auto chunk, auto from, auto begin, auto size) {
      all.first.push_back(state.receiver_step(from, chunk));
      const float* const shift = state.stream(from, chunk, begin, 1.0f).shift;
      all.second.insert(all.second.end(), shift, shift + size);
    });
    return all;
  }
  Bytes exported() {
    Bytes bytes = room_for(part);
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      part.export_chunk(state, chunk, bytes);
    }
    return bytes;
  }
  void import_all(std::span<const std::byte> own) {
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      ASSERT_TRUE(part.import_chunk(state, chunk, own));
    }
  }
  void refold_all(std::span<const std::byte> parts) {
    for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      ASSERT_TRUE(part.refold_chunk(state, chunk, parts));
    }
  }

  Layout layout;
  std::uint32_t number;
  CodecState state;
  StatePart part;
};

// Every node of the layout. Residuals are whole numbers: the node's number and 1 times a thousand,
// and the element's.
struct Nodes {
  explicit Nodes(const Layout& layout) {
    for (std::uint32_t self = 0; self < layout.nodes; ++self) {
      all.emplace_back(layout, self);
      all.back().set_residuals(static_cast<float>(1000 * (self + 1)));
    }
  }
  Bytes exported() {
    std::vector<Bytes> parts;
    for (Node& node : all) parts.push_back(node.exported());
    return joined(parts);
  }

  std::deque<Node> all;
};

}  // namespace tern::daemon::state_part_test
