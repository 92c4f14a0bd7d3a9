#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/recipe.h"

namespace tern::bench {

// What `tern-bench codec` and `tern-bench codebook` are asked for.
struct CodecOptions {
  std::vector<std::string> recipes;
  std::vector<std::string> targets;
  std::vector<std::string> inputs;
  std::vector<std::string> codebooks;
  std::string dtype;
  std::size_t size_mib = 64;
  std::size_t chunk_kib = 256;
  std::size_t iterations = 12;
  std::size_t steps = 0;
  std::size_t pools = 3;
  std::uint64_t seed = 1;
  std::string json_file;

  std::size_t chunk_elements() const { return chunk_kib << 8; }
  std::size_t speed_elements() const { return size_mib << 18; }
};

// The way out with a sentence for people.
[[noreturn]] inline void give_up(const std::string& sentence) {
  fmt::print(stderr, "tern-bench: {}\n", sentence);
  throw CLI::RuntimeError(1);
}

template <typename T>
T value_or_exit(Result<T> result) {
  if (!result) give_up(result.error().text);
  return std::move(*result);
}

// Parsed, and each one that can be measured here; gives up otherwise.
std::vector<codec::Recipe> parse_recipes(const CodecOptions& options);

void write_json(const std::string& path, const nlohmann::json& json);

// Speed and ratio on Gaussian inputs, on every kernel target.
void run_synthetic(const CodecOptions& options, const std::vector<codec::Recipe>& recipes);
// Everything on the tensors of files.
void run_files(const CodecOptions& options, const std::vector<codec::Recipe>& recipes);

}  // namespace tern::bench
