#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tern::train_chars {

// A text as numbers: every byte that occurs has one, in the order of the bytes.
struct Text {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> test;  // the last tenth
  std::size_t symbols = 0;
};

// Throws std::runtime_error, which says which file is wrong and how.
Text load_text(const std::string& path);

}  // namespace tern::train_chars
