#include "codec/entropy/codebook.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>

namespace tern::codec::entropy {
namespace {

constexpr std::string_view kFirstLine = "tern-codebook 1";
constexpr std::size_t kMostNameBytes = 23;

using Books = std::vector<std::unique_ptr<InstalledBook>>;

// Readers see a whole set or the one before it.
std::atomic<const Books*> installed{nullptr};

// Sets that were replaced live on: a reader may still use one. Only tests replace.
std::vector<std::unique_ptr<const Books>>& all_sets() {
  static std::vector<std::unique_ptr<const Books>> sets;
  return sets;
}

bool is_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kMostNameBytes) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

bool is_complete(const CodeLengths& lengths) noexcept {
  return std::find(lengths.begin(), lengths.end(), 0) == lengths.end() &&
         kraft_sum(lengths) == kKraftOne;
}

std::string hex(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

tl::unexpected<Error> refuse(std::string why) {
  return fail(Errc::invalid_argument, "codebook: " + std::move(why));
}

// Takes words off the front of a text, whatever blanks are between them.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    constexpr std::string_view kBlanks = " \t\r\n";
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kBlanks));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

}  // namespace

// FNV-1a, 64 bits: enough to tell books apart that nobody made to collide; a peer that did would
// only send values that it could have sent anyway.
std::uint64_t Codebook::hash() const noexcept {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const std::uint8_t length : lengths) value = (value ^ length) * 0x100000001b3u;
  return value;
}

Codebook train_codebook(std::string name, const std::array<std::uint64_t, 256>& histogram) {
  // Counts above 2^48 - 2 would leave no room in code_lengths; scaled down they say the same.
  std::uint64_t largest = *std::max_element(histogram.begin(), histogram.end());
  unsigned shift = 0;
  for (; largest >= (std::uint64_t{1} << 47); largest >>= 1) ++shift;
  Histogram smoothed;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    smoothed[symbol] = (histogram[symbol] >> shift) + 1;
  }
  Codebook book;
  book.name = std::move(name);
  book.lengths = code_lengths(smoothed);
  return book;
}

std::string codebook_text(const Codebook& book) {
  std::string text(kFirstLine);
  text += "\nname " + book.name + "\nhash " + hex(book.hash()) + "\nlengths\n";
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    text += std::to_string(book.lengths[symbol]) + (symbol % 16 == 15 ? '\n' : ' ');
  }
  return text;
}

Result<Codebook> parse_codebook(std::string_view text) {
  if (!text.starts_with(kFirstLine)) {
    return refuse("the first line is not '" + std::string(kFirstLine) + "'");
  }
  Words words(text.substr(kFirstLine.size()));
  Codebook book;
  if (words.next() != "name") return refuse("'name' is missing");
  book.name = words.next();
  if (!is_name(book.name)) return refuse("a name has 1 to 23 characters of a-z 0-9 _ . -");
  if (words.next() != "hash") return refuse("'hash' is missing");
  const std::string hash(words.next());
  if (words.next() != "lengths") return refuse("'lengths' is missing");
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    const std::string_view word = words.next();
    const auto [end, error] =
        std::from_chars(word.data(), word.data() + word.size(), book.lengths[symbol]);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size()) {
      return refuse("length " + std::to_string(symbol) + " is not a small number");
    }
  }
  if (!words.next().empty()) return refuse("there is more after the 256 lengths");
  if (!is_complete(book.lengths)) {
    return refuse("the lengths, 1 to 11 each, do not make a complete prefix code");
  }
  if (hash != hex(book.hash())) return refuse("the hash is not that of the lengths");
  return book;
}

Result<void> install_codebooks(std::vector<Codebook> books) {
  auto set = std::make_unique<Books>();
  auto smaller = std::make_unique<SmallerTables>();
  for (Codebook& book : books) {
    if (!is_name(book.name)) return refuse("'" + book.name + "' is no name for a book");
    if (!is_complete(book.lengths)) return refuse(book.name + " is not a complete prefix code");
    const auto same_name = [&](const auto& other) { return other->book.name == book.name; };
    if (std::any_of(set->begin(), set->end(), same_name)) {
      return refuse("there are two books " + book.name);
    }
    auto entry = std::make_unique<InstalledBook>();
    entry->hash = book.hash();
    entry->encode = make_encode_table(book.lengths);
    make_decode_table(book.lengths, *smaller, entry->decode);
    entry->book = std::move(book);
    set->push_back(std::move(entry));
  }
  const Books* const now = set.get();
  all_sets().push_back(std::move(set));
  installed.store(now, std::memory_order_release);
  return {};
}

const InstalledBook* find_codebook(std::string_view name) noexcept {
  const Books* const books = installed.load(std::memory_order_acquire);
  if (books == nullptr) return nullptr;
  for (const auto& entry : *books) {
    if (entry->book.name == name) return entry.get();
  }
  return nullptr;
}

const InstalledBook* find_codebook(std::uint64_t hash) noexcept {
  const Books* const books = installed.load(std::memory_order_acquire);
  if (books == nullptr) return nullptr;
  for (const auto& entry : *books) {
    if (entry->hash == hash) return entry.get();
  }
  return nullptr;
}

bool has_codebook(std::string_view name) noexcept { return find_codebook(name) != nullptr; }

}  // namespace tern::codec::entropy
