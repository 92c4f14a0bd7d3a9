#include "ctl/table.h"

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"

namespace tern::ctl {
namespace {

// Code points: the bytes of UTF-8 that do not continue one. Good enough for names.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & '\xc0') != '\x80'; }));
}

void append_cell(std::string& line, std::string_view cell, std::size_t width, Align align) {
  const std::string padding(width - width_of(cell), ' ');
  if (!line.empty()) line += "  ";
  if (align == Align::right) line += padding;
  line += cell;
  if (align == Align::left) line += padding;
}

void append_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line;
  text += '\n';
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  TERN_CHECK(cells.size() == columns_.size());
  // An empty cell would make a line ragged for programs that split at spaces.
  for (std::string& cell : cells) cell = cell.empty() ? "-" : printable(cell);
  lines_.push_back({std::move(cells), {}});
}

void Table::add_note(std::string_view text) { lines_.push_back({{}, printable(text)}); }

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = width_of(columns_[i].title);
    for (const Line& line : lines_) {
      if (!line.cells.empty()) width = std::max(width, width_of(line.cells[i]));
    }
    widths.push_back(width);
  }
  std::string text;
  std::string titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    append_cell(titles, columns_[i].title, widths[i], columns_[i].align);
  }
  append_line(text, std::move(titles));
  for (const Line& line : lines_) {
    std::string row;
    for (std::size_t i = 0; i < line.cells.size(); ++i) {
      append_cell(row, line.cells[i], widths[i], columns_[i].align);
    }
    append_line(text, line.cells.empty() ? "  " + line.note : std::move(row));
  }
  return text;
}

}  // namespace tern::ctl
