// A mixture of experts in small: every rank has tokens, each of which belongs to the expert of some
// rank. The ranks tell each other how many tokens they send, send them, let their experts work on
// what has come, and send the results back to where the tokens came from.
//
//   token_exchange ID_FILE RANK SIZE [TOKENS]
//
// Rank 0 writes the file that the others read. The daemon is that of $TERN_SOCKET, or the system's.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/rendezvous/rendezvous.h"
#include "tern/tern.hpp"

namespace {

constexpr std::size_t kWidth = 64;  // numbers of a token

using Counts = std::vector<std::uint64_t>;
using Floats = std::vector<float>;

std::uint64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

// Tokens become numbers.
Counts in_numbers(Counts tokens) {
  for (std::uint64_t& count : tokens) count *= kWidth;
  return tokens;
}

// How many tokens come from each rank, where so many go to each.
Counts exchange_counts(tern::Group& group, const Counts& sent) {
  Counts received(sent.size());
  group.all_to_all(std::span<const std::uint64_t>(sent), std::span<std::uint64_t>(received)).wait();
  return received;
}

Floats exchange(tern::Group& group, const Floats& values, const Counts& sent,
                const Counts& received) {
  Floats result(sum(received) * kWidth);
  const Counts out = in_numbers(sent), in = in_numbers(received);
  group.all_to_all(std::span<const float>(values), std::span<float>(result), out, in).wait();
  return result;
}

// The expert of a rank: enough to see whose work it was.
void work(int rank, Floats& values) {
  for (float& value : values) value = value * 2 + static_cast<float>(rank);
}

int run(const std::string& id_file, int rank, int size, std::size_t tokens) {
  tern::Client client;
  tern::Group group = tern::rendezvous::join_by_file(client, id_file, rank, size);

  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::vector<std::size_t> expert_of(tokens);
  for (auto& expert : expert_of) expert = random() % static_cast<unsigned>(size);
  std::sort(expert_of.begin(), expert_of.end());  // tokens for one expert lie together
  Counts sent(static_cast<std::size_t>(size), 0);
  for (const std::size_t expert : expert_of) ++sent[expert];
  Floats values(tokens * kWidth);
  for (float& value : values) value = static_cast<float>(random() % 1000);

  const Counts received = exchange_counts(group, sent);
  Floats mine = exchange(group, values, sent, received);
  work(rank, mine);
  const Floats back = exchange(group, mine, received, sent);

  for (std::size_t i = 0; i < back.size(); ++i) {
    const auto expert = static_cast<int>(expert_of[i / kWidth]);
    Floats expected{values[i]};
    work(expert, expected);
    if (back[i] != expected[0]) {
      throw std::runtime_error("token " + std::to_string(i / kWidth) + " came back wrong");
    }
  }
  std::printf("rank %d of %d: %zu tokens out, %llu in, all came back\n", rank, size, tokens,
              static_cast<unsigned long long>(sum(received)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::fprintf(stderr, "usage: token_exchange ID_FILE RANK SIZE [TOKENS]\n");
    return 2;
  }
  try {
    const std::size_t tokens = argc == 5 ? std::strtoull(argv[4], nullptr, 10) : 1000;
    return run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), tokens);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "token_exchange: %s\n", error.what());
    return 1;
  }
}
