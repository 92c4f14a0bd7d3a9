#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tern::bench {

enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  ping_pong,  // from rank 0 to rank 1 and back: a send and a recv of each
};
inline constexpr std::array<std::string_view, 9> kCollectives = {
    "all_reduce", "reduce",  "reduce_scatter", "all_gather", "broadcast",
    "gather",     "scatter", "all_to_all",     "ping_pong"};

// What one rank of an operation has and gets: `count` elements in all, of which all ranks have
// shares of the same size. The root is rank 0.
struct CollectiveShape {
  Collective kind = Collective::all_reduce;
  std::size_t count = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 1;

  bool root() const noexcept { return rank == 0; }
  std::size_t share() const noexcept { return count / size; }
  std::size_t input() const noexcept {
    if (kind == Collective::all_gather || kind == Collective::gather) return share();
    if (kind == Collective::broadcast || kind == Collective::scatter ||
        kind == Collective::ping_pong) {
      return root() ? count : 0;
    }
    return count;
  }
  std::size_t output() const noexcept {
    if (kind == Collective::reduce_scatter || kind == Collective::scatter) return share();
    if (kind == Collective::reduce || kind == Collective::gather) return root() ? count : 0;
    if (kind == Collective::ping_pong) return rank < 2 ? count : 0;
    return count;
  }
};

// One way to do an operation of one shape, again and again, from one place to another.
class CollectiveRunner {
 public:
  virtual ~CollectiveRunner() = default;

  // The same on all ranks.
  virtual const std::string& name() const = 0;
  virtual std::span<float> input() = 0;
  virtual std::span<float> output() = 0;
  // Returns when the output is there and the input may be changed. Throws when it never will be.
  virtual void run() = 0;
};

}  // namespace tern::bench
