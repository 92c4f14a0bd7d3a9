#pragma once

// What every kind of operation delivers, written apart from the daemon: each element of a rank's
// output from the ranks' inputs, one at a time, in numbers that every order of addition gives.

#include <random>
#include <string>
#include <vector>

#include "cluster.h"

namespace tern::sim {

struct KindCase {
  shm::OpKind kind = shm::OpKind::all_reduce;
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  std::uint32_t root = 0;
  // Of every rank's share; others take their sum as count. Of an all_to_all of each pair: rank by
  // rank of who sends.
  std::vector<std::uint64_t> counts{};
  bool equal = false;  // the shares are, and the op does not give counts
  bool in_place = false;
};

std::uint64_t total(const std::vector<std::uint64_t>& counts);
bool reduces(shm::OpKind kind);
// The op that all ranks submit, without places in their arenas.
OpRequest request_of(const KindCase& c, std::uint32_t rank = 0);
// Elements of the op that a rank's input (output) holds.
plan::Range input_of(const KindCase& c, std::uint32_t rank);
plan::Range output_of(const KindCase& c, std::uint32_t rank);
// A whole number at each place of the op, as this rank has it.
double value_at(const KindCase& c, std::uint32_t rank, std::uint64_t element);
double expected_at(const KindCase& c, std::uint32_t ranks, std::uint64_t element);

// What a rank has submitted, and where.
struct SubmittedKind {
  std::uint64_t block = 0, block_bytes = 0;  // of the output, and the input if in place
  OpRequest request;
  std::uint64_t ticket = 0;
};
SubmittedKind submit_on(Client& client, const KindCase& c, std::uint32_t rank,
                        Tensor* tensor = nullptr);
// All ranks submit it, in an order that `seed` draws. By rank.
std::vector<SubmittedKind> submit_kind(Cluster& cluster, const KindCase& c, std::uint64_t seed,
                                       const std::vector<Tensor*>& tensors = {});
// Of an op that has succeeded on the rank: empty, or how its memory differs from what it should be.
// What lies around it must stay as it was, and so must the input.
std::string wrong_in(Cluster& cluster, const KindCase& c, std::uint32_t rank,
                     const SubmittedKind& mine);

// Both: all ranks succeed.
void expect_kind(Cluster& cluster, const KindCase& c, std::uint64_t seed);

// A kind with a type, a reduction, a root, shares and a place, for so many ranks.
KindCase draw_kind(std::mt19937_64& random, std::uint32_t ranks);
std::vector<std::uint32_t> draw_nodes(std::mt19937_64& random);  // ranks of each
std::string words_of(const KindCase& c);

}  // namespace tern::sim
