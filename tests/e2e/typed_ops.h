#pragma once

// Every kind of operation with every type and every reduction that the type has. Values are small
// whole numbers, of complex types two of them, and all their reductions but averages are exact.
// What each rank must get is computed here, one element at a time.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "tests/e2e/ranks_on_nodes.h"

namespace tern::e2e {

struct TypedOp {
  tern_op_kind kind = TERN_OP_ALL_REDUCE;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::uint32_t root = 0, ranks = 1;
  std::uint64_t share = 0;
  std::string name{};  // of its tensor

  bool reduces() const {
    return kind == TERN_OP_ALL_REDUCE || kind == TERN_OP_REDUCE || kind == TERN_OP_REDUCE_SCATTER;
  }
  std::uint64_t all() const { return share * ranks; }
};

// Of one type: each kind with each reduction that there is, and a send and a recv of each rank.
std::vector<TypedOp> typed_ops_of(DType dtype, std::uint32_t ranks, std::mt19937_64& random);

// A rank submits all at once, in an order of its own: those with a tensor match by its name. Empty,
// or what is wrong.
std::string run_typed_ops(LayoutRank& at, const std::vector<TypedOp>& ops, std::uint64_t seed);

}  // namespace tern::e2e
