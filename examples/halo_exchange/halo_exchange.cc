// A halo exchange: heat spreads over a plate that is cut into tiles, one for each rank. The new
// value of a point is made of the points around it. So each rank keeps a border of its neighbours'
// points around its own tile, and in every step all neighbours send each other their edges. At the
// end each rank compares its tile with the same computation on the whole plate.
//
//   halo_exchange ID_FILE RANK SIZE [STEPS]
//
// Rank 0 writes the file that the others read. The daemon is that of $TERN_SOCKET, or the system's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/rendezvous/rendezvous.h"
#include "tern/tern.hpp"

namespace {

constexpr int kHeight = 120, kWidth = 200;  // points of a tile

using Floats = std::vector<float>;

// A part of the plate with a border of one point, which is cold at the plate's end.
class Plate {
 public:
  Plate(int height, int width)
      : height_(height), width_(width), points_(size()), next_(points_.size()) {}

  float& at(int y, int x) { return points_[index(y, x)]; }
  int height() const { return height_; }
  int width() const { return width_; }

  void step() {
    for (int y = 0; y < height_; ++y) {
      for (int x = 0; x < width_; ++x) {
        const float around = (at(y - 1, x) + at(y + 1, x)) + (at(y, x - 1) + at(y, x + 1));
        next_[index(y, x)] = at(y, x) + 0.125f * (around - 4.0f * at(y, x));
      }
    }
    // The border is filled anew before each step.
    std::swap(points_, next_);
  }

 private:
  std::size_t size() const {
    return static_cast<std::size_t>(height_ + 2) * static_cast<std::size_t>(width_ + 2);
  }
  std::size_t index(int y, int x) const {
    return static_cast<std::size_t>(y + 1) * static_cast<std::size_t>(width_ + 2) +
           static_cast<std::size_t>(x + 1);
  }
  int height_, width_;
  Floats points_, next_;
};

float heat_at(int y, int x) { return static_cast<float>((y * 7919 + x * 104729) % 1000); }

// Which tile a rank has: the plate is as square as its ranks allow.
struct Place {
  int rows = 1, columns = 1;
  int row = 0, column = 0;
};
Place place_of(int rank, int size) {
  Place place;
  for (int rows = 1; rows * rows <= size; ++rows) {
    if (size % rows == 0) place.rows = rows;
  }
  place.columns = size / place.rows;
  place.row = rank / place.columns;
  place.column = rank % place.columns;
  return place;
}

// A neighbour, with the edge of this tile that it needs and the border that it fills. What goes up
// comes from below: the receiver knows it by the way it has gone.
enum Way : std::uint32_t { kUp, kDown, kLeft, kRight };
struct Neighbour {
  int rank;
  Way out, in;
  Floats edge, border;
};

class Halo {
 public:
  Halo(tern::Group& group, const Place& place, Plate& tile)
      : group_(group), place_(place), tile_(tile) {
    meet(-1, 0, kUp, kDown);
    meet(1, 0, kDown, kUp);
    meet(0, -1, kLeft, kRight);
    meet(0, 1, kRight, kLeft);
  }

  // Both are submitted before either is waited for, so that no two ranks wait for each other.
  void exchange() {
    std::vector<tern::Ticket> tickets;
    for (Neighbour& one : neighbours_) {
      for (std::size_t i = 0; i < one.edge.size(); ++i) one.edge[i] = edge(one.out, i, 0);
      tickets.push_back(group_.recv(std::span(one.border), one.rank, one.in));
      tickets.push_back(group_.send(std::span<const float>(one.edge), one.rank, one.out));
    }
    for (tern::Ticket& ticket : tickets) ticket.wait();
    for (Neighbour& one : neighbours_) {
      for (std::size_t i = 0; i < one.border.size(); ++i) edge(one.out, i, 1) = one.border[i];
    }
  }

 private:
  void meet(int down, int right, Way out, Way in) {
    const int row = place_.row + down, column = place_.column + right;
    if (row < 0 || row >= place_.rows || column < 0 || column >= place_.columns) return;
    const auto points = static_cast<std::size_t>(down != 0 ? tile_.width() : tile_.height());
    neighbours_.push_back({row * place_.columns + column, out, in, Floats(points), Floats(points)});
  }
  // Of the tile's edge on that side, or of the border beyond it.
  float& edge(Way way, std::size_t i, int beyond) {
    const int at = static_cast<int>(i);
    if (way == kUp) return tile_.at(-beyond, at);
    if (way == kDown) return tile_.at(tile_.height() - 1 + beyond, at);
    if (way == kLeft) return tile_.at(at, -beyond);
    return tile_.at(at, tile_.width() - 1 + beyond);
  }

  tern::Group& group_;
  Place place_;
  Plate& tile_;
  std::vector<Neighbour> neighbours_;
};

// The same on one rank.
Plate whole_plate(const Place& place, int steps) {
  Plate plate(place.rows * kHeight, place.columns * kWidth);
  for (int y = 0; y < plate.height(); ++y) {
    for (int x = 0; x < plate.width(); ++x) plate.at(y, x) = heat_at(y, x);
  }
  for (int step = 0; step < steps; ++step) plate.step();
  return plate;
}

int run(const std::string& id_file, int rank, int size, int steps) {
  tern::Client client;
  tern::Group group = tern::rendezvous::join_by_file(client, id_file, rank, size);
  const Place place = place_of(rank, size);
  const int top = place.row * kHeight, left = place.column * kWidth;
  Plate tile(kHeight, kWidth);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) tile.at(y, x) = heat_at(top + y, left + x);
  }
  Halo halo(group, place, tile);
  for (int step = 0; step < steps; ++step) {
    halo.exchange();
    tile.step();
  }
  Plate whole = whole_plate(place, steps);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      if (tile.at(y, x) != whole.at(top + y, left + x)) {
        throw std::runtime_error("the tile differs at " + std::to_string(y) + "," +
                                 std::to_string(x));
      }
    }
  }
  std::printf("rank %d of %d: tile %d,%d of %dx%d after %d steps is that of the whole plate\n",
              rank, size, place.row, place.column, place.rows, place.columns, steps);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: halo_exchange ID_FILE RANK SIZE [STEPS]\n");
    return 2;
  }
  try {
    const int steps = argc == 5 ? std::atoi(argv[4]) : 50;
    if (steps < 1) throw std::invalid_argument("STEPS must be at least 1");
    return run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "halo_exchange: %s\n", error.what());
    return 1;
  }
}
