#pragma once

// `ternctl top`: what happens between two looks at the daemon, as rates. Pure: samples in, rows
// out.

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/table.h"

namespace tern::ctl {

// The daemon's answers of one moment.
struct TopSample {
  double at_s = 0;  // on any clock
  // Null: not shown to this user.
  nlohmann::json status, clients, groups, tensors, peers, counters;
};

struct TopColumn {
  std::string_view key;  // of JSON and of --sort
  std::string_view title;
  Align align = Align::right;
};

struct TopCell {
  std::string text;
  double number = 0;
  bool is_text = false;
};

struct TopRows {
  std::span<const TopColumn> columns;
  std::vector<std::vector<TopCell>> rows;
};

struct TopView {
  std::string_view name;  // "jobs"
  std::string_view sort;  // by which column, unless somebody chooses
  std::span<const TopColumn> columns;
  std::vector<std::vector<TopCell>> (*rows)(const TopSample& before, const TopSample& now);
  nlohmann::json TopSample::*source;  // without which there is nothing to show
};

// jobs, tensors, peers, lanes.
std::span<const TopView> top_views();
const TopView* find_top_view(std::string_view name);

// Why the view cannot be shown to this user; empty if it can.
std::string hidden_note(const TopView& view, const TopSample& now);

// The place of the column; nothing if the view has none of that key.
std::optional<std::size_t> column_of(const TopView& view, std::string_view key);

// Two looks at the daemon, between which things happen.
struct TopSpan {
  const TopSample& before;
  const TopSample& now;
};

// Numbers fall and texts rise, unless reversed.
struct TopOrder {
  std::size_t column;
  bool reversed = false;
};
TopRows top_rows(const TopView& view, const TopSpan& span, const TopOrder& order);

// A line about the daemon, and the rows below their titles.
std::string render_top(const TopView& view, const TopSpan& span, const TopRows& rows,
                       std::size_t sort_column);
nlohmann::json top_json(const TopView& view, const TopSpan& span, const TopRows& rows);

// The first `rows` lines, each of at most `columns` characters; 0: without limit.
std::string fit_screen(std::string_view text, std::size_t rows, std::size_t columns);

}  // namespace tern::ctl
