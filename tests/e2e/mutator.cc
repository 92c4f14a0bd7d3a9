#include "tests/e2e/mutator.h"

#include <algorithm>
#include <cstring>

namespace tern::e2e {

using nlohmann::json;

std::uint64_t Mutator::number() {
  switch (below(6)) {
    case 0:
      return below(4);
    case 1:
      return below(70'000);
    case 2:  // just below, at and above a power of two
      return (std::uint64_t{1} << below(64)) + below(3) - 1;
    case 3:
      return ~std::uint64_t{0} - below(4);
    case 4:
      return static_cast<std::uint32_t>(random_());
    default:
      return random_();
  }
}

void Mutator::change(std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  for (std::uint64_t times = 1 + (one_in(4) ? below(8) : 0); times > 0; --times) {
    std::byte& byte = bytes[below(bytes.size())];
    switch (below(4)) {
      case 0:
        byte ^= std::byte{1} << static_cast<int>(below(8));
        break;
      case 1:
        byte = static_cast<std::byte>(random_());
        break;
      default: {
        const std::size_t width = std::min<std::size_t>(std::size_t{1} << below(4), bytes.size());
        const std::size_t at = below(bytes.size() / width) * width;
        const std::uint64_t value = number();
        std::memcpy(bytes.data() + at, &value, width);
      }
    }
  }
}

void Mutator::distort(std::vector<std::byte>& bytes) {
  if (!one_in(3)) change(bytes);
  if (bytes.empty()) return;
  const std::size_t at = below(bytes.size());
  switch (below(5)) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 2: {
      const auto more = noise(64);
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
      break;
    }
    case 3: {
      const std::vector<std::byte> part(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                                        bytes.end());
      bytes.insert(bytes.end(), part.begin(), part.end());
      break;
    }
    default:
      break;
  }
}

std::vector<std::byte> Mutator::noise(std::size_t most) {
  std::vector<std::byte> bytes(1 + below(most));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random_());
  return bytes;
}

std::string Mutator::text() {
  static constexpr const char* kTexts[] = {"",      "0",           "-1",
                                           "stop",  "raw",         "../../etc/passwd",
                                           "%s%n",  "127.0.0.1:1", "\xc3\xa4\xe2\x82\xac",
                                           "\n\"\\"};
  if (!one_in(3)) return kTexts[below(std::size(kTexts))];
  return std::string(below(300), static_cast<char>('!' + below(90)));
}

json Mutator::value() {
  switch (below(8)) {
    case 0:
      return nullptr;
    case 1:
      return one_in(2);
    case 2:
      return number();
    case 3:
      return static_cast<std::int64_t>(number());
    case 4:
      return static_cast<double>(number()) * 1e200;
    case 5:
      return text();
    case 6: {  // nested, now and then far deeper than is allowed, if not than our own stack
      json deep = json::array();
      for (std::uint64_t levels = below(one_in(50) ? 200 : 24); levels > 0; --levels) {
        json outer = json::array();
        outer.push_back(std::move(deep));
        deep = std::move(outer);
      }
      return deep;
    }
    default:
      return json{{text(), number()}};
  }
}

void Mutator::change(json& document) {
  json* at = &document;
  while (at->is_structured() && !at->empty() && !one_in(4)) {
    auto child = at->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(below(at->size())));
    at = &*child;
  }
  if (at->is_object() && !at->empty() && one_in(2)) {
    if (one_in(2)) {
      at->erase(at->begin());
    } else {
      (*at)[text()] = value();
    }
  } else if (at->is_string() && one_in(2)) {
    std::string changed = at->get<std::string>();
    if (!changed.empty()) changed[below(changed.size())] = static_cast<char>(' ' + below(95));
    *at = changed;
  } else if (at == &document) {
    at->update(json{{text(), value()}});
  } else {
    *at = value();
  }
}

}  // namespace tern::e2e
