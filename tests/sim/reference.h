#pragma once

// What an op must deliver, computed in one place from all ranks' inputs with the same codec
// functions, in the order that docs/architecture.md defines: ranks of a node, then the owner and
// the nodes after it.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "client.h"
#include "codec/codec.h"
#include "codec/recipe.h"
#include "shm/sharding.h"

namespace tern::sim {

struct GroupView {
  std::vector<std::vector<std::uint32_t>> ranks_of_node;
  std::uint32_t size = 0;
  std::uint64_t chunk_bytes = 0;
  shm::CutVersion cut = shm::kNewestCut;
  std::uint64_t eager_bytes = 0;
  bool eager_blocks = true;
  std::uint64_t lossy_min_bytes = 0;
};

using Bytes = std::vector<std::byte>;

class Reference {
 public:
  explicit Reference(GroupView group) : group_(std::move(group)) {}

  // `inputs` by rank; tensor null: anonymous, then `sequence` decides who owns what. Lossy ops must
  // be given in the order of the tensor's uses, because they move its residuals.
  Bytes all_reduce(const OpRequest& op, const Tensor* tensor, std::uint64_t sequence,
                   const std::vector<Bytes>& inputs);
  bool is_lossy(const OpRequest& op, const Tensor* tensor) const;
  // The residual of a node, as long as the tensor.
  std::vector<float>& residual(std::uint64_t tensor, std::uint32_t node, std::uint64_t count);

 private:
  struct Part {
    std::uint64_t begin;
    std::uint32_t elements;
  };
  struct Chunk {
    std::uint32_t node;  // that encodes it
    std::uint64_t number;
    Part part;
  };
  struct Leg {
    bool broadcast;
    std::span<const float> input;
    float state_scale;
    float fixed_max;
  };
  struct Work {  // of one op
    const OpRequest& op;
    const Tensor* tensor;
    std::uint64_t sequence;
    const std::vector<Bytes>& inputs;
    codec::Recipe recipe;
    std::vector<float> reduce_max;  // scale=tensor, by node
    Bytes output;
  };

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(group_.ranks_of_node.size()); }
  Bytes sum_local(const Work& work, std::uint32_t node, Part part) const;
  Bytes contribution(const Work& work, std::uint32_t node, Part part) const;
  void exact_chunk(Work& work, std::uint32_t owner, Part part) const;
  // The node's elements to the sum of an op in one hop, which node 0 begins.
  void add_elements(const Work& work, std::uint32_t node, Bytes& sum) const;
  void exact_eager_op(Work& work) const;
  void lossy_eager_op(Work& work);
  void lossy_op(Work& work, const shm::Sharding& sharding);
  Bytes lossy_sum(Work& work, const Chunk& chunk);
  void scan(Work& work, const shm::Sharding& sharding);
  // False: not finite. Then `values`, what the readers of the block get, is not to be used.
  bool encode(Work& work, const Chunk& chunk, const Leg& leg, std::vector<float>& values);
  // `parked_max`, under scale=tensor: the sum has waited for the largest of the owner's sums.
  void deliver(Work& work, const Chunk& chunk, const Bytes& sum, std::optional<float> parked_max);

  GroupView group_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<float>> residuals_;
  // Under diana and ef21: how many blocks a node has sent of a chunk of a tensor.
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>, std::uint64_t> steps_;
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::uint64_t>, std::vector<float>> codebooks_;
  codec::Workspace workspace_;
};

// Elements of a dtype from plain floats, and back.
Bytes bytes_of(DType dtype, const std::vector<float>& values);
std::vector<float> floats_of(DType dtype, const Bytes& bytes);

}  // namespace tern::sim
