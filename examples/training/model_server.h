#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tern::training {

// Of a tensor, by parameters of the flat array of all.
struct OwnedPart {
  std::size_t begin = 0;
  std::size_t count = 0;
};

// A parameter server on the ranks: each owns a part of every tensor, or one rank owns all of them.
// Tensors are numbered as in the layout. All ranks make the same calls on each; functions throw as
// those of Exchange do.
class ModelServer {
 public:
  virtual ~ModelServer() = default;

  // What this rank owns of a tensor.
  virtual OwnedPart owned(std::size_t tensor) const = 0;

  // Begins to bring the gradient of a tensor to its owners. It must not be touched until pushed().
  virtual void push(std::size_t tensor) = 0;
  // The average of all ranks' gradients, of what this rank owns.
  virtual std::span<const float> pushed(std::size_t tensor) = 0;

  // Begins to give all ranks the differences that owners have made: of what this rank owns.
  virtual void pull(std::size_t tensor, std::span<const float> difference) = 0;
  // The difference of the whole tensor, the same bits on all ranks.
  virtual std::span<const float> pulled(std::size_t tensor) = 0;
};

}  // namespace tern::training
