#pragma once

// Changes what is valid until it is not, mostly a little: the inputs of the campaign against real
// daemons.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace tern::e2e {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename Container>
  auto& pick(Container& from) {
    return from[below(from.size())];
  }

  // Small, at an edge of a type, or anything.
  std::uint64_t number();
  // Some bits, bytes or aligned words of it.
  void change(std::span<std::byte> bytes);
  // Its length too: cut, longer, a part doubled.
  void distort(std::vector<std::byte>& bytes);
  std::vector<std::byte> noise(std::size_t most);
  // A value somewhere inside takes another value, goes, or gets company.
  void change(nlohmann::json& document);

 private:
  nlohmann::json value();
  std::string text();

  std::mt19937_64 random_;
};

// Of a packed struct.
template <typename T>
void change_fields(Mutator& mutator, T& fields, std::size_t from = 0) {
  mutator.change(std::as_writable_bytes(std::span(&fields, 1)).subspan(from));
}

}  // namespace tern::e2e
