#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tern::bench {

// What a contestant knows about the bytes it sent; of Tern's recipes only.
struct Traffic {
  std::uint64_t ops;
  std::uint64_t bytes_raw;
  std::uint64_t bytes_sent;
  std::uint64_t state_bytes;
  double residual_ratio;
  std::uint64_t encode_ns, queue_ns, wire_ns, decode_ns, wait_ns;  // totals over `ops`
  std::string recipe;                                              // in canonical form
};

// One way to add up a tensor of one size across the ranks, in place.
class Contestant {
 public:
  virtual ~Contestant() = default;

  // The same on all ranks; what the rows of the result are called.
  virtual const std::string& name() const = 0;

  // How far an element of the sum may be from the true one, relative to the largest input; empty
  // where an error is carried over to the next operation, so that no single sum says anything.
  virtual std::optional<double> tolerance() const = 0;

  // Where the input is put and the result is found.
  virtual std::span<float> values() = 0;

  // Returns when the result is there. Throws when it never will be.
  virtual void all_reduce() = 0;

  // Since the beginning.
  virtual std::optional<Traffic> traffic() const { return std::nullopt; }
};

}  // namespace tern::bench
