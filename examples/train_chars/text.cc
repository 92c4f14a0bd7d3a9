#include "examples/train_chars/text.h"

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace tern::train_chars {
namespace {

constexpr std::size_t kLeastBytes = 1000;

}  // namespace

Text load_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot open " + path + "; give a text file by --data FILE");
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || bytes.size() < kLeastBytes) {
    throw std::runtime_error(path + " is too short to learn from: " + std::to_string(bytes.size()) +
                             " bytes of at least " + std::to_string(kLeastBytes));
  }
  std::array<bool, 256> seen{};
  for (const char c : bytes) seen[static_cast<unsigned char>(c)] = true;
  std::array<std::uint8_t, 256> number{};
  Text text;
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (seen[byte]) number[byte] = static_cast<std::uint8_t>(text.symbols++);
  }
  const std::string_view all = bytes;
  const std::size_t cut = all.size() - all.size() / 10;
  for (const char c : all.substr(0, cut))
    text.train.push_back(number[static_cast<unsigned char>(c)]);
  for (const char c : all.substr(cut)) text.test.push_back(number[static_cast<unsigned char>(c)]);
  return text;
}

}  // namespace tern::train_chars
