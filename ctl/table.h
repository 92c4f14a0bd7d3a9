#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tern::ctl {

enum class Align { left, right };
inline constexpr Align kRight = Align::right;

struct Column {
  std::string_view title;
  Align align = Align::left;
};

// Rows under titles, each column as wide as its widest cell. What others have named cannot end a
// line or steer the terminal: cells and notes are printable().
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Requires: as many cells as columns.
  void add_row(std::vector<std::string> cells);

  // A line of its own below the last row, indented, outside of the columns.
  void add_note(std::string_view text);

  std::string text() const;

 private:
  struct Line {
    std::vector<std::string> cells;
    std::string note;  // instead of cells
  };

  std::vector<Column> columns_;
  std::vector<Line> lines_;
};

}  // namespace tern::ctl
