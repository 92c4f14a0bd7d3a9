#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tern::bench {

struct CodebookOptions {
  std::string recipe;
  std::vector<std::string> inputs;
  std::string dtype;
  std::size_t chunk_kib = 256;
  std::string name;
  std::string out;
};

// Pools the histogram of the codes that the recipe makes of these tensors, writes the codebook that
// suits it, and says what it would save.
void train_codebook_file(const CodebookOptions& options);

}  // namespace tern::bench
