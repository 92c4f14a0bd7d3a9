#include "ctl/table.h"

#include <gtest/gtest.h>

namespace tern::ctl {
namespace {

TEST(Table, AlignsColumnsAndLeavesNotesOutOfTheWidths) {
  Table table({{"NAME"}, {"N", Align::right}, {"LAST"}});
  table.add_row({"a", "1,000", "x"});
  table.add_note("a note that is longer than any of the columns");
  table.add_row({"longer", "", "y"});
  EXPECT_EQ(table.text(),
            "NAME        N  LAST\n"
            "a       1,000  x\n"
            "  a note that is longer than any of the columns\n"
            "longer      -  y\n");
}

TEST(Table, NoNameMakesALineOfItsOwnOrSteersTheTerminal) {
  Table table({{"JOB"}, {"N"}});
  table.add_row({"a\nroot  1\x1b[2J",
                 // NOLINTNEXTLINE(misc-misleading-bidirectional): that is the point
                 "\xe2\x80\xae"
                 "1"});
  table.add_note("error: \r\xc2\x9b");
  EXPECT_EQ(table.text(),
            "JOB                  N\n"
            "a\\x0aroot  1\\x1b[2J  \\xe2\\x80\\xae1\n"
            "  error: \\x0d\\xc2\\x9b\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"A"}, {"B"}});
  table.add_row({"\xc3\xa9\xc3\xa9", "1"});
  table.add_row({"ee", "2"});
  EXPECT_EQ(table.text(), "A   B\n\xc3\xa9\xc3\xa9  1\nee  2\n");
}

}  // namespace
}  // namespace tern::ctl
