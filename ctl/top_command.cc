#include "ctl/top_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "ctl/terminal.h"
#include "ctl/top.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr std::string_view kKeys =
    "q quit   j jobs   t tensors   p peers   l lanes   < > sort by another column   r reverse";

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<TopSample> take_sample(const Session& session) {
  TopSample sample;
  struct Part {
    const char* verb;
    json TopSample::*answer;
  };
  for (const auto& [verb, answer] :
       {Part{"status", &TopSample::status}, Part{"clients", &TopSample::clients},
        Part{"groups", &TopSample::groups}, Part{"tensors", &TopSample::tensors},
        Part{"peers", &TopSample::peers}, Part{"counters", &TopSample::counters}}) {
    auto result = answer == &TopSample::status ? session.ask(verb) : session.ask_for_shown(verb);
    if (!result) return tl::unexpected(result.error());
    sample.*answer = std::move(*result);
  }
  sample.at_s = now_s();
  return sample;
}

std::string keys_of(const TopView& view) {
  std::string text;
  for (const TopColumn& column : view.columns) {
    text += (text.empty() ? "" : ", ") + std::string(column.key);
  }
  return text;
}

ExitCode print_frames(const Session& session, const TopOptions& options, const TopView& view,
                      std::size_t sort) {
  auto before = take_sample(session);
  if (!before) return explain(before.error());
  if (const std::string note = hidden_note(view, *before); !note.empty()) {
    return explain({Errc::permission_denied, note});
  }
  for (int frame = 0; frame < options.batch; ++frame) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval_s));
    auto now = take_sample(session);
    if (!now) return explain(now.error());
    const TopRows rows = top_rows(view, {*before, *now}, {sort, options.reversed});
    const std::string text = session.as_json
                                 ? json_text(top_json(view, {*before, *now}, rows), -1) + "\n"
                                 : render_top(view, {*before, *now}, rows, sort) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return ExitCode::failed;
    before = std::move(now);
  }
  return ExitCode::ok;
}

// What the keys change.
struct Looks {
  const TopView* view;
  std::size_t sort;
  bool reversed;
  bool quits = false;

  void choose(std::string_view name) {
    view = find_top_view(name);
    sort = *column_of(*view, view->sort);
    reversed = false;
  }
  void press(char key) {
    const std::size_t columns = view->columns.size();
    switch (key) {
      case 'q':
        quits = true;
        break;
      case 'j':
        return choose("jobs");
      case 't':
        return choose("tensors");
      case 'p':
        return choose("peers");
      case 'l':
        return choose("lanes");
      case '<':
        sort = (sort + columns - 1) % columns;
        break;
      case '>':
        sort = (sort + 1) % columns;
        break;
      case 'r':
        reversed = !reversed;
        break;
      default:
        break;
    }
  }
};

ExitCode show_live(const Session& session, const TopOptions& options, Looks looks) {
  auto before = take_sample(session);
  if (!before) return explain(before.error());
  auto now = before;
  Terminal terminal;
  double due_s = now_s() + options.interval_s;
  std::string trouble;
  while (!looks.quits && !terminal.ended()) {
    if (now_s() >= due_s) {
      auto fresh = take_sample(session);
      trouble = fresh ? "" : fresh.error().text;  // it may come back
      if (fresh) {
        before = std::move(now);
        now = std::move(fresh);
      }
      due_s = now_s() + options.interval_s;
    }
    const auto [lines, columns] = terminal.size();
    const TopRows rows = top_rows(*looks.view, {*before, *now}, {looks.sort, looks.reversed});
    const std::string body = render_top(*looks.view, {*before, *now}, rows, looks.sort);
    terminal.show(fit_screen(body, lines > 1 ? lines - 1 : 1, columns) + "\n" +
                  fit_screen(trouble.empty() ? kKeys : trouble, 1, columns));
    looks.press(terminal.wait_key(std::max(0.0, due_s - now_s())));
  }
  return ExitCode::ok;
}

}  // namespace

ExitCode show_top(const Session& session, const TopOptions& options) {
  const TopView* const view = find_top_view(options.view);
  if (view == nullptr) {
    fmt::print(stderr, "ternctl: there is no view {}; it is jobs, tensors, peers or lanes\n",
               options.view);
    return ExitCode::usage;
  }
  const auto sort = column_of(*view, options.sort.empty() ? view->sort : options.sort);
  if (!sort) {
    fmt::print(stderr, "ternctl: {} cannot be sorted by {}; it has {}\n", view->name, options.sort,
               keys_of(*view));
    return ExitCode::usage;
  }
  if (options.batch > 0) return print_frames(session, options, *view, *sort);
  if (!Terminal::is_there() || session.as_json) {
    fmt::print(stderr, "ternctl: no terminal: --once or --batch N prints plain text\n");
    return ExitCode::usage;
  }
  return show_live(session, options, {view, *sort, options.reversed});
}

}  // namespace tern::ctl
