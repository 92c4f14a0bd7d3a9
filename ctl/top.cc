#include "ctl/top.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ctl/fields.h"
#include "ctl/human.h"
#include "ctl/session.h"

namespace tern::ctl {

using nlohmann::json;

const TopView* find_top_view(std::string_view name) {
  const auto views = top_views();
  const auto found = std::find_if(views.begin(), views.end(),
                                  [&](const TopView& view) { return view.name == name; });
  return found == views.end() ? nullptr : &*found;
}

std::string hidden_note(const TopView& view, const TopSample& now) {
  if (!(now.*view.source).is_null()) return "";
  return for_observers(fmt::format("{} are", view.name));
}

std::optional<std::size_t> column_of(const TopView& view, std::string_view key) {
  for (std::size_t i = 0; i < view.columns.size(); ++i) {
    if (view.columns[i].key == key) return i;
  }
  return std::nullopt;
}

TopRows top_rows(const TopView& view, const TopSpan& span, const TopOrder& order) {
  TopRows result{view.columns, view.rows(span.before, span.now)};
  const auto goes_before = [&](const auto& a, const auto& b) {
    const TopCell& left = a[order.column];
    const TopCell& right = b[order.column];
    return left.is_text ? left.text < right.text : left.number > right.number;
  };
  std::stable_sort(result.rows.begin(), result.rows.end(), [&](const auto& a, const auto& b) {
    return order.reversed ? goes_before(b, a) : goes_before(a, b);
  });
  return result;
}

std::string render_top(const TopView& view, const TopSpan& span, const TopRows& rows,
                       std::size_t sort_column) {
  const auto& [before, now] = span;
  std::string text =
      fmt::format("ternd {} on {}, up {}, {} lanes, {} clients, {} groups, {} peers, memory {}\n",
                  text_field(now.status, "version"), text_field(now.status, "advertise"),
                  time_field(now.status, "uptime_s", 1), count_field(now.status, "lanes"),
                  count_field(now.status, "clients"), count_field(now.status, "groups"),
                  count_field(now.status, "peers"), bytes_field(now.status, "rss_bytes"));
  if (const std::string note = hidden_note(view, now); !note.empty()) return text + note + "\n";
  text += fmt::format("{}, by {}, over {}\n\n", view.name, view.columns[sort_column].key,
                      human_seconds(now.at_s - before.at_s));
  std::vector<Column> columns;
  columns.reserve(rows.columns.size());
  for (const TopColumn& column : rows.columns) columns.push_back({column.title, column.align});
  Table table(std::move(columns));
  for (const auto& row : rows.rows) {
    std::vector<std::string> cells;
    cells.reserve(row.size());
    for (const TopCell& cell : row) cells.push_back(cell.text);
    table.add_row(std::move(cells));
  }
  return text + table.text();
}

json top_json(const TopView& view, const TopSpan& span, const TopRows& rows) {
  json list = json::array();
  for (const auto& row : rows.rows) {
    json object = json::object();
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string key(rows.columns[i].key);
      object[key] = row[i].is_text ? json(row[i].text) : json(row[i].number);
    }
    list.push_back(std::move(object));
  }
  return {{"view", view.name},
          {"seconds", span.now.at_s - span.before.at_s},
          {"rows", std::move(list)}};
}

std::string fit_screen(std::string_view text, std::size_t rows, std::size_t columns) {
  std::string fitted;
  std::size_t line = 0, width = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      width = 0;
      if (rows != 0 && line >= rows) break;
      fitted += c;
      continue;
    }
    if ((c & '\xc0') != '\x80') ++width;  // not a byte that continues a character
    if (columns == 0 || width <= columns) fitted += c;
  }
  return fitted;
}

}  // namespace tern::ctl
