// A mixture of experts in small: every rank has tokens, each of which belongs to the expert of some
// rank. The ranks tell each other how many tokens they send, send them, let their experts work on
// what has come, and send the results back to where the tokens came from.
//
//   token_exchange ID_FILE RANK SIZE [TOKENS]
//
// Rank 0 writes the file that the others read. The daemon is that of $TERN_SOCKET, or the system's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tern/tern.hpp"

namespace {

constexpr std::size_t kWidth = 64;  // numbers of a token
constexpr auto kPatience = std::chrono::minutes(1);

using Counts = std::vector<std::uint64_t>;
using Floats = std::vector<float>;

// Complete when it appears, because a rename makes it appear.
tern_group_id share_id(tern::Client& client, const std::string& path, int rank) {
  if (rank == 0) {
    const tern_group_id id = client.mint();
    std::ofstream(path + ".draft") << id.text;
    std::filesystem::rename(path + ".draft", path);
    return id;
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!std::filesystem::exists(path)) {
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("no " + path + "; does rank 0 run?");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  tern_group_id id = {};
  text.copy(id.text, sizeof id.text - 1);
  return id;
}

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
  tern::Group group = client.join(share_id(client, id_file, rank), rank, size);

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
