#include "daemon/codebooks.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "codec/entropy/codebook.h"

namespace tern::daemon {

Result<std::size_t> load_codebooks(const std::string& directory) {
  if (directory.empty()) return 0;
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".book") files.push_back(entry.path());
  }
  if (error) {
    return fail(Errc::invalid_argument,
                "codebook_dir: cannot read " + directory + ": " + error.message());
  }
  std::sort(files.begin(), files.end());
  std::vector<codec::entropy::Codebook> books;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    auto book = codec::entropy::parse_codebook(text);
    if (!book) return fail(book.error().code, path.string() + ": " + book.error().text);
    books.push_back(std::move(*book));
  }
  const std::size_t count = books.size();
  if (auto installed = codec::entropy::install_codebooks(std::move(books)); !installed) {
    return fail(installed.error().code, directory + ": " + installed.error().text);
  }
  return count;
}

}  // namespace tern::daemon
