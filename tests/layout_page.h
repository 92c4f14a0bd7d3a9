#pragma once

// Pages of docs/ repeat layouts for readers. Here their tables are compared with the code, row by
// row: | offset | type | `field` | ...

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <type_traits>

namespace tern::testing {

class LayoutPage {
 public:
  explicit LayoutPage(const char* path) {
    std::ifstream file(path);
    EXPECT_TRUE(file) << path;
    text_.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string& text() const { return text_; }

  // The part under the first heading that begins so, up to the next.
  std::string section(const std::string& heading) const {
    const std::size_t begin = text_.find("# " + heading);
    EXPECT_NE(begin, std::string::npos) << heading;
    if (begin == std::string::npos) return "";
    return text_.substr(begin, text_.find("\n#", begin) - begin);
  }

 private:
  std::string text_;
};

inline void expect_row(const std::string& section, std::size_t offset, const std::string& type,
                       const std::string& field) {
  const std::string row = "| " + std::to_string(offset) + " | " + type + " | `" + field + "`";
  EXPECT_NE(section.find(row), std::string::npos) << row;
}

// u8 to i64; anything else by its size.
template <typename Field>
std::string type_name() {
  if constexpr (std::is_integral_v<Field>) {
    return (std::is_signed_v<Field> ? "i" : "u") + std::to_string(8 * sizeof(Field));
  } else {
    return std::to_string(sizeof(Field)) + " bytes";
  }
}

#define EXPECT_FIELD(section, struct_name, field)                    \
  ::tern::testing::expect_row(section, offsetof(struct_name, field), \
                              ::tern::testing::type_name<decltype(struct_name::field)>(), #field)

}  // namespace tern::testing
