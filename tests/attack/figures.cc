// tern-attack-figures NAME --users N --seconds N --rounds N --seed N --beside NAME,...
//
// Prints a line of JSON for each round: what another user's job met beside as many processor hogs,
// and then beside the attack, and beside those of one more user each. NAME `list` prints the names
// and promises.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/attack/trial.h"

namespace tern::attack {
namespace {

struct Options {
  int users = 1, rounds = 3;
  double seconds = 5;
  std::uint64_t seed = 1;
  std::vector<std::string_view> beside = {};
};

bool read_names(std::string_view text, std::vector<std::string_view>& names) {
  for (std::size_t end = 0; end != std::string_view::npos; text.remove_prefix(end + 1)) {
    end = text.find(',');
    const Attack* const attack = find_attack(text.substr(0, end));
    if (attack == nullptr) return false;
    names.push_back(attack->name);
    if (end == std::string_view::npos) break;
  }
  return true;
}

bool read_options(std::span<char* const> words, Options& options) {
  if (words.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string name = words[i];
    if (name == "--users") {
      options.users = std::atoi(words[i + 1]);
    } else if (name == "--rounds") {
      options.rounds = std::atoi(words[i + 1]);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(words[i + 1], nullptr);
    } else if (name == "--seed") {
      options.seed = std::strtoull(words[i + 1], nullptr, 10);
    } else if (name != "--beside" || !read_names(words[i + 1], options.beside)) {
      return false;
    }
  }
  return true;
}

int list() {
  nlohmann::json rows = nlohmann::json::array();
  for (const Attack& one : all_attacks()) {
    if (one.name == kHog || one.standing == Standing::alone) continue;
    rows.push_back({{"name", one.name}, {"promise", one.promise}});
  }
  std::cout << rows << std::endl;
  return 0;
}

// Of both daemons since they started: the longest turns, in which step they were, and how many took
// longer than they may, where a lane may take one block's codec more.
nlohmann::json turns(Trial& trial) {
  nlohmann::json all;
  for (std::size_t node = 0; node < trial.cluster().size(); ++node) {
    const nlohmann::json counters = trial.daemon(node).ask("counters");
    for (const std::string thread : {"conductor", "lane"}) {
      const auto longest = counters.find(thread + "_longest_turn_ns");
      const auto over = counters.find(thread + "_turns_over_budget");
      if (longest == counters.end() || over == counters.end()) continue;
      nlohmann::json& of_thread = all[thread];
      if (of_thread.is_null()) of_thread = {{"ms", 0.0}, {"step", ""}, {"over", 0}};
      const double ms = longest->value("value", 0.0) / 1e6;
      if (ms >= of_thread.value("ms", 0.0)) {
        of_thread["ms"] = ms;
        of_thread["step"] = longest->value("step", "");
        if (const auto steps = longest->find("steps"); steps != longest->end() && !steps->empty()) {
          of_thread["step"] = steps->front();
        }
      }
      of_thread["over"] = of_thread.value("over", 0) + over->value("value", 0);
    }
  }
  return all;
}

int measure(const Attack& attack, const Options& options) {
  Trial trial(attack.stage);
  if (!trial.problem().empty()) {
    std::cerr << attack.name << ": " << trial.problem() << '\n';
    return 1;
  }
  trial.run({.attack = kHog, .users = options.users, .seconds = 0.5, .seed = options.seed});
  const Burden before = burden_of(trial.daemon().pid());
  for (int round = 0; round < options.rounds; ++round) {
    Trial::Plan plan{kHog, options.users, options.seconds,
                     options.seed + std::uint64_t{100} * static_cast<unsigned>(round)};
    const auto hog = trial.run(plan);
    plan.attack = attack.name;
    plan.beside = options.beside;
    const auto beside = trial.run(plan);
    const Burden after = burden_of(trial.daemon().pid());
    std::cout << nlohmann::json{{"attack", beside},
                                {"hog", hog},
                                {"turns", turns(trial)},
                                {"grown_bytes", after.anonymous_bytes - before.anonymous_bytes}}
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tern::attack

int main(int argc, char** argv) {
  using namespace tern::attack;
  Options options;
  const std::span<char* const> words(argv, static_cast<std::size_t>(argc));
  if (argc == 2 && std::string_view(argv[1]) == "list") return list();
  const Attack* const attack = argc > 1 ? find_attack(argv[1]) : nullptr;
  if (attack == nullptr || !read_options(words.subspan(2), options)) {
    std::cerr << "usage: tern-attack-figures list | NAME [--users N] [--seconds N] [--rounds N] "
                 "[--seed N] [--beside NAME,...]\n";
    return 2;
  }
  return measure(*attack, options);
}
