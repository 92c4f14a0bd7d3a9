#pragma once

// Gathers and broadcasts of deltas by all ranks of a cluster, and what must arrive of them.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cluster.h"

namespace tern::sim {

// What arrives of one share, or of a root's values, computed with the codec's functions alone. It
// keeps what the sender keeps.
class MovedReference {
 public:
  struct Sender {
    std::uint32_t node = 0;
    std::uint32_t first_number = 0;  // of its chunks
    std::uint32_t step = 1;          // between their numbers
    bool has_codebooks = false;
    std::uint32_t columns = 1;  // of a whole op: the nodes
  };

  MovedReference(const Tensor& tensor, const Sender& sender, std::uint64_t count)
      : tensor_(tensor),
        sender_(sender),
        recipe_(*codec::parse_recipe(tensor.spec.recipe)),
        chunk_elements_(shm::elements_of_chunk(
            shm::CutVersion::even, count, shm::most_chunk_elements(16 << 10, tensor.spec.dtype),
            sender.columns)),
        residual_(count) {}

  const std::vector<float>& residual() const { return residual_; }

  float largest(const std::vector<float>& values, float state_scale) const;
  // `fixed_max`: of all that the sender's node sends, for scale=tensor.
  std::vector<float> deliver(const std::vector<float>& values, std::uint64_t sequence,
                             float state_scale, float fixed_max);

 private:
  const Tensor& tensor_;
  Sender sender_;
  codec::Recipe recipe_;
  std::size_t chunk_elements_;
  std::vector<float> residual_;
  std::map<std::uint32_t, std::vector<float>> codebooks_;
  codec::Workspace workspace_;
};

TensorSpec delta(const std::string& recipe, std::uint64_t count, DType dtype = DType::f32);

struct Move {
  OpRequest request;
  std::vector<std::vector<float>> inputs;  // by rank; of a broadcast the root's only
  bool in_place = false;
  std::vector<std::string> recipes;  // by rank, of the op; empty: all have the request's
};

// Every rank has values of its own for its share.
Move gather_of(DType dtype, const std::vector<std::uint64_t>& counts, std::uint64_t seed);
// From rank 1.
Move broadcast_of(DType dtype, std::uint64_t count, std::uint32_t ranks, std::uint64_t seed);
// What arrives if nothing is lost.
std::vector<float> plain(const Move& move);

struct Moved {
  std::vector<float> values;
  std::uint64_t bytes_sent = 0;
};
// One move of all ranks, which must succeed with the same bits everywhere.
Moved run(Cluster& cluster, const Move& move, const std::vector<Tensor*>& tensors);
// All ranks are refused it for its recipe, with this word.
void expect_refused(Cluster& cluster, const Move& move, const std::vector<Tensor*>& tensors,
                    const std::string& word);

}  // namespace tern::sim
