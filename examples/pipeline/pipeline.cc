// A pipeline of stages: each rank has some layers of a model. A batch is cut into parts, which go
// from the first rank to the last one after the other, so that all ranks work at the same time.
// What the last makes of a part goes back to the first.
//
//   pipeline ID_FILE RANK SIZE [PARTS]
//
// Rank 0 writes the file that the others read. The daemon is that of $TERN_SOCKET, or the system's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/rendezvous/rendezvous.h"
#include "tern/tern.hpp"

namespace {

constexpr std::size_t kWidth = 20000;  // numbers of a part
// What goes on to the next stage, and what comes back from the last.
constexpr std::uint32_t kForward = 0, kBack = 1;

using Floats = std::vector<float>;

float input_at(std::size_t part, std::size_t i) {
  return static_cast<float>((part * 31 + i) % 1000);
}

// The layers of a stage: enough to see in which order a part has been where.
float layer(int rank, float value) { return value / 2 + static_cast<float>(rank + 1); }

void work(int rank, Floats& values) {
  for (float& value : values) value = layer(rank, value);
}

// A stage between two others. The next part comes while this one is worked on, and the last one
// leaves meanwhile: two buffers.
void pass_on(tern::Group& group, int rank, int size, std::size_t parts) {
  const bool is_last = rank == size - 1;
  const int next = is_last ? 0 : rank + 1;
  Floats buffers[2] = {Floats(kWidth), Floats(kWidth)};
  std::vector<tern::Ticket> sent;
  tern::Ticket coming = group.recv(std::span(buffers[0]), rank - 1, kForward);
  for (std::size_t part = 0; part < parts; ++part) {
    Floats& here = buffers[part % 2];
    coming.wait();
    if (part > 0) sent.back().wait();  // the other buffer is free again
    if (part + 1 < parts) {
      coming = group.recv(std::span(buffers[(part + 1) % 2]), rank - 1, kForward);
    }
    work(rank, here);
    sent.push_back(group.send(std::span<const float>(here), next, is_last ? kBack : kForward));
  }
  sent.back().wait();
}

void run_first(tern::Group& group, int size, std::size_t parts) {
  std::vector<Floats> batch(parts, Floats(kWidth)), results(parts, Floats(kWidth));
  std::vector<tern::Ticket> tickets;
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::size_t i = 0; i < kWidth; ++i) batch[part][i] = input_at(part, i);
    work(0, batch[part]);
    // From the last stage, whichever rank that is; this one, where it is alone.
    tickets.push_back(group.recv(std::span(results[part]), TERN_ANY_SOURCE, kBack));
    tickets.push_back(group.send(std::span<const float>(batch[part]), size > 1 ? 1 : 0,
                                 size > 1 ? kForward : kBack));
  }
  for (tern::Ticket& ticket : tickets) ticket.wait();
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      float expected = input_at(part, i);
      for (int rank = 0; rank < size; ++rank) expected = layer(rank, expected);
      if (results[part][i] != expected) {
        throw std::runtime_error("part " + std::to_string(part) + " came back wrong");
      }
    }
  }
}

int run(const std::string& id_file, int rank, int size, std::size_t parts) {
  tern::Client client;
  tern::Group group = tern::rendezvous::join_by_file(client, id_file, rank, size);
  if (rank == 0) {
    run_first(group, size, parts);
  } else {
    pass_on(group, rank, size, parts);
  }
  std::printf("rank %d of %d: %zu parts through this stage%s\n", rank, size, parts,
              rank == 0 ? ", all came back" : "");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: pipeline ID_FILE RANK SIZE [PARTS]\n");
    return 2;
  }
  try {
    // Each part is a send and a recv of rank 0, which has them all in flight.
    const std::size_t parts = argc == 5 ? std::strtoull(argv[4], nullptr, 10) : 16;
    if (parts < 1 || parts > 100) throw std::invalid_argument("PARTS must be 1..100");
    return run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), parts);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pipeline: %s\n", error.what());
    return 1;
  }
}
