#include "base/printable.h"

#include <gtest/gtest.h>

namespace tern {
namespace {

void expect_same(std::string_view text) {
  EXPECT_TRUE(is_printable(text));
  EXPECT_EQ(printable(text), text);
}
void expect_escaped(std::string_view text, std::string_view expected) {
  EXPECT_FALSE(is_printable(text));
  EXPECT_EQ(printable(text), expected);
  EXPECT_TRUE(is_printable(printable(text)));
}

TEST(Printable, TextStays) {
  expect_same("");
  expect_same("a job's label: ~ \\x1b");
  expect_same("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa6");  // e with acute, euro, a bird
}

TEST(Printable, ControlCharactersAreEscaped) {
  expect_escaped("a\nb\x1b[2J\t\x7f", "a\\x0ab\\x1b[2J\\x09\\x7f");
  expect_escaped(std::string_view("\0", 1), "\\x00");
  expect_escaped("\xc2\x9b", "\\xc2\\x9b");  // a C1 one: CSI
}

TEST(Printable, WhatCannotBeSeenOrTurnsTextAroundIsEscaped) {
  // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
  expect_escaped("\xe2\x80\xaegnp", "\\xe2\\x80\\xaegnp");  // right-to-left override
  // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
  expect_escaped("\xe2\x80\xaa", "\\xe2\\x80\\xaa");  // an embedding
  // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
  expect_escaped("\xe2\x81\xa6", "\\xe2\\x81\\xa6");           // an isolate
  expect_escaped("\xe2\x81\xa9", "\\xe2\\x81\\xa9");           // its end
  expect_escaped("\xe2\x80\x8b", "\\xe2\\x80\\x8b");           // zero width
  expect_escaped("\xe2\x80\xa8", "\\xe2\\x80\\xa8");           // a line separator
  expect_escaped("\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81");  // a tag
}

TEST(Printable, WhatIsNotUtf8IsEscaped) {
  expect_escaped("\x80", "\\x80");
  expect_escaped("\xc3", "\\xc3");
  expect_escaped("\xc3(", "\\xc3(");
  expect_escaped("\xc1\x8a", "\\xc1\\x8a");                    // a line feed in two bytes
  expect_escaped("\xe0\x80\x8a", "\\xe0\\x80\\x8a");           // and in three
  expect_escaped("\xed\xa0\x80", "\\xed\\xa0\\x80");           // a surrogate
  expect_escaped("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");  // beyond the last character
  expect_escaped("\xff", "\\xff");
}

}  // namespace
}  // namespace tern
