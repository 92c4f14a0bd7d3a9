#pragma once

// The inputs of every rank as a function of (seed, rank, position), and what the collectives must
// make of them: each rank can check its own result without asking the others.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace tern::e2e {

enum class Data : std::uint8_t {
  whole,  // small integers: every reduction is exact in every order
  real,   // -1 .. 1, or all bits of an integer
};

struct Draw {
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  Data data = Data::whole;
  std::uint64_t seed = 0;
};

struct Comparison {
  std::uint64_t wrong = 0;  // elements off by more than the tolerance
  double max_error = 0;
};

void fill(const Draw& draw, std::uint32_t rank, std::span<std::byte> out);

// `tolerance` is absolute; negative: none for whole data, and for real data what roundings can add.
Comparison compare_reduced(const Draw& draw, std::uint32_t ranks, double tolerance,
                           std::span<const std::byte> output);
// What compare_reduced compares with, and any array of a float type, as doubles.
std::vector<double> reduced(const Draw& draw, std::uint32_t ranks, std::size_t count);
std::vector<double> as_doubles(DType dtype, std::span<const std::byte> values);
Comparison compare_broadcast(const Draw& draw, std::uint32_t root,
                             std::span<const std::byte> output);

// False if there is no such name.
bool parse_dtype(const std::string& name, DType& dtype);
bool parse_reduction(const std::string& name, Reduction& reduction);

}  // namespace tern::e2e
