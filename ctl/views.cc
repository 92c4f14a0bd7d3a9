#include "ctl/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "ctl/fields.h"
#include "ctl/table.h"
#include "ctl/tuner_views.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

std::string yes_no(const json& object, std::string_view key, std::string_view yes,
                   std::string_view no) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_boolean()) return "-";
  return std::string(value->get<bool>() ? yes : no);
}

// "a, b"; empty if the field is no list or has nothing in it.
std::string list_field(const json& object, std::string_view key) {
  std::string text;
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return text;
  for (const json& item : *list) {
    if (!text.empty()) text += ", ";
    text += printable(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return text;
}

std::string render_status(const json& status) {
  if (!status.is_object()) return "-\n";
  std::string text =
      fmt::format("ternd {} on node {}, pid {}, up {}\n", text_field(status, "version"),
                  text_field(status, "node_id"), text_field(status, "pid"),
                  time_field(status, "uptime_s", kSecond));
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<14}{}\n", name, value);
  };
  line("listen", text_field(status, "listen"));
  line("advertise", text_field(status, "advertise"));
  line("transport", fmt::format("{}, {}", text_field(status, "transport"),
                                yes_no(status, "plaintext", "not encrypted", "encrypted")));
  line("security", text_field(status, "peer_security"));
  const auto certificates = status.find("certificates");
  for (const json& one : certificates != status.end() ? *certificates : json::array()) {
    line(text_field(one, "kind") == "authority" ? "authority" : "certificate",
         fmt::format("{}, until {}", text_field(one, "subject"), text_field(one, "expires")));
  }
  line("carriers", text_field(status, "carriers"));
  line("lanes", count_field(status, "lanes"));
  line("kernels", text_field(status, "kernel_target"));
  line("clients", count_field(status, "clients"));
  line("groups", count_field(status, "groups"));
  line("peers", count_field(status, "peers"));
  if (text_field(status, "standing") == "user") {
    line("shown", "what is this user's; observers see all");
  } else {
    line("memory", bytes_field(status, "rss_bytes"));
  }
  if (const std::string lanes = list_field(status, "silent_lanes"); !lanes.empty()) {
    line("silent lanes", lanes);
  }
  if (const std::string names = list_field(status, "waiting_settings"); !names.empty()) {
    line("need restart", names);
  }
  return text;
}

// A mean, and the last of what it is the mean of.
std::string measured(const json& device, std::string_view mean, std::string_view last) {
  std::string text = time_field(device, mean, kUs);
  if (text == "-") return text;
  return fmt::format("{} (last {})", text, time_field(device, last, kUs));
}

void add_device_notes(Table& table, const json& device) {
  table.add_note(fmt::format(
      "device {}: {} held, {} pinned, {} ops, {} failed, encode {}, decode {}",
      text_field(device, "device"), bytes_field(device, "device_bytes"),
      bytes_field(device, "pinned_bytes"), count_field(device, "ops"),
      count_field(device, "ops_failed"), measured(device, "encode_us", "last_encode_us"),
      measured(device, "decode_us", "last_decode_us")));
  const std::string failures = count_field(device, "pinning_failures");
  if (failures == "0" || failures == "-") return;
  table.add_note(fmt::format("device {}: memory could not be pinned (failures: {}): {}",
                             text_field(device, "device"), failures,
                             text_field(device, "pinning_problem")));
}

std::string render_clients(const json& clients) {
  if (clients.empty()) return "No client is connected.\n";
  Table table({{"ID", kRight},
               {"PID", kRight},
               {"UID", kRight},
               {"GID", kRight},
               {"JOB"},
               {"CONNECTED", kRight},
               {"ARENA", kRight},
               {"REGIONS", kRight},
               {"GROUPS", kRight},
               {"IN FLIGHT", kRight},
               {"OPS DONE", kRight}});
  for (const json& client : clients) {
    table.add_row({text_field(client, "id"), text_field(client, "pid"), text_field(client, "uid"),
                   text_field(client, "gid"), text_field(client, "job"),
                   time_field(client, "connected_s", kSecond), bytes_field(client, "arena_bytes"),
                   bytes_field(client, "region_bytes"), count_field(client, "groups"),
                   count_field(client, "ops_in_flight"), count_field(client, "ops_completed")});
    for (const json& device : rows_of(client, "devices")) add_device_notes(table, device);
  }
  return table.text();
}

std::string render_peers(const json& peers) {
  if (peers.empty()) return "No peer is linked.\n";
  Table table({{"NODE"},
               {"ADDRESS"},
               {"GROUP"},
               {"LANE", kRight},
               {"STATE"},
               {"TRANSPORT"},
               {"ROUND TRIP", kRight},
               {"SENT", kRight},
               {"RECEIVED", kRight},
               {"FRAMES SENT", kRight},
               {"FRAMES RECEIVED", kRight},
               {"UNACKED", kRight},
               {"RESUMES", kRight},
               {"REPLAYED", kRight},
               {"FAILOVERS", kRight},
               {"NOTE"}});
  for (const json& peer : peers) {
    table.add_row({text_field(peer, "node_id"), text_field(peer, "address"),
                   text_field(peer, "group"), text_field(peer, "lane"), text_field(peer, "state"),
                   text_field(peer, "transport"), time_field(peer, "round_trip_us", kUs),
                   bytes_field(peer, "bytes_sent"), bytes_field(peer, "bytes_received"),
                   count_field(peer, "frames_sent"), count_field(peer, "frames_received"),
                   count_field(peer, "unacked_frames"), count_field(peer, "resumes"),
                   count_field(peer, "replayed_frames"), count_field(peer, "failovers"),
                   text_field(peer, "transport_note")});
  }
  return table.text();
}

// A send or recv has a tag, and waits for one rank or, a recv, for any.
std::string waiting_note(const json& op, double unit_s) {
  const std::string since = time_field(op, "seconds", unit_s);
  const std::string ranks = ranks_field(op, "ranks");
  if (!op.is_object() || !op.contains("tag")) {
    return fmt::format("{} of {}: waiting for ranks {} for {}", text_field(op, "op"),
                       text_field(op, "tensor"), ranks, since);
  }
  return fmt::format("{}: waits for {}, tag {}, for {}", text_field(op, "op"),
                     ranks == "-" ? "any rank" : "rank " + ranks, text_field(op, "tag"), since);
}

void add_group_notes(Table& table, const json& group) {
  const auto waiting = group.find("waiting");
  if (waiting != group.end() && waiting->is_array()) {
    for (const json& op : *waiting) {
      table.add_note(waiting_note(op, kSecond));
    }
  }
  const std::string error = text_field(group, "error");
  if (error != "-") table.add_note("error: " + error);
}

std::string render_groups(const json& groups) {
  if (groups.empty()) return "No group has a rank on this node.\n";
  Table table({{"GROUP"},
               {"JOB"},
               {"EPOCH", kRight},
               {"STATE"},
               {"RANKS", kRight},
               {"NODES", kRight},
               {"LOCAL RANKS"},
               {"LANES", kRight},
               {"IN FLIGHT", kRight},
               {"OPS DONE", kRight}});
  for (const json& group : groups) {
    table.add_row({text_field(group, "uid"), text_field(group, "job"), count_field(group, "epoch"),
                   text_field(group, "state"), count_field(group, "size"),
                   count_field(group, "nodes"), ranks_field(group, "local_ranks"),
                   count_field(group, "lanes"), count_field(group, "ops_in_flight"),
                   count_field(group, "ops_completed")});
    if (group.is_object()) add_group_notes(table, group);
  }
  return table.text();
}

// Appended to the recipe. An older daemon has no such field.
std::string who_encodes(const json& tensor) {
  return text_field(tensor, "client_blocks") == "true" ? " by client" : "";
}

std::string render_tensors(const json& tensors) {
  if (tensors.empty()) return "No tensor is declared.\n";
  Table table({{"GROUP"},          {"TENSOR"},
               {"TYPE"},           {"ELEMENTS", kRight},
               {"ROLE"},           {"RECIPE"},
               {"OPERATION"},      {"OPS", kRight},
               {"RAW", kRight},    {"SENT", kRight},
               {"RATIO", kRight},  {"RESIDUAL", kRight},
               {"ENCODE", kRight}, {"QUEUE", kRight},
               {"WIRE", kRight},   {"DECODE", kRight},
               {"WAIT", kRight},   {"FALLBACKS", kRight},
               {"STATE", kRight},  {"STATE OF"},
               {"RESETS", kRight}});
  for (const json& tensor : tensors) {
    table.add_row(
        {text_field(tensor, "group"),          text_field(tensor, "name"),
         text_field(tensor, "dtype"),          count_field(tensor, "count"),
         text_field(tensor, "role"),           text_field(tensor, "recipe") + who_encodes(tensor),
         text_field(tensor, "operation"),      count_field(tensor, "ops"),
         bytes_field(tensor, "bytes_raw"),     bytes_field(tensor, "bytes_sent"),
         ratio_field(tensor, "ratio"),         fraction_field(tensor, "residual_ratio"),
         time_field(tensor, "encode_ms", kMs), time_field(tensor, "queue_ms", kMs),
         time_field(tensor, "wire_ms", kMs),   time_field(tensor, "decode_ms", kMs),
         time_field(tensor, "wait_ms", kMs),   count_field(tensor, "raw_fallbacks"),
         bytes_field(tensor, "state_bytes"),   text_field(tensor, "state_of"),
         count_field(tensor, "resets")});
  }
  return table.text();
}

std::string render_counters(const json& counters) {
  if (counters.empty() || !counters.is_object()) return "There are no counters.\n";
  Table table({{"COUNTER"}, {"VALUE", kRight}, {"UNIT"}, {"MEANING"}});
  for (const auto& [name, counter] : counters.items()) {
    std::string meaning = text_field(counter, "help");
    if (const std::string step = text_field(counter, "step"); step != "-") {
      meaning += ", in " + step;
    }
    table.add_row({name, count_field(counter, "value"), text_field(counter, "unit"), meaning});
  }
  return table.text();
}

std::string render_version(const json& version) {
  return fmt::format("ternctl {}\nternd   {} (wire {}, shared memory {}, control {})\n",
                     TERN_VERSION, text_field(version, "version"), text_field(version, "wire"),
                     text_field(version, "shm"), text_field(version, "control"));
}

constexpr std::array kVerbs{
    Verb{"status", "The daemon at a glance", render_status},
    Verb{"clients", "Connected local processes", render_clients},
    Verb{"peers", "Links to the daemons of other nodes", render_peers},
    Verb{"groups", "Groups, and which ranks they wait for", render_groups},
    Verb{"tensors", "Declared tensors: recipes, ratios and where the time goes", render_tensors},
    Verb{"tuner", "Tensors whose recipe the tuner chooses: what, and why", render_tuner},
    Verb{"explain", "Why a tensor is sent as it is, and what other recipes would cost",
         render_explain, Argument{"tensor", "TENSOR", "Its name, or job/name", true}},
    Verb{"policy", "The rules for tensors that say nothing of their own; with RULES, sets them",
         render_policy,
         Argument{"set", "RULES", "PATTERN what ...; PATTERN what ... (see docs/tuner.md)", false}},
    Verb{"counters", "All counters of the daemon", render_counters},
    Verb{"version", "Versions of the daemon and its formats", render_version},
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

const Verb* find_verb(std::string_view name) {
  const auto found = std::find_if(kVerbs.begin(), kVerbs.end(),
                                  [&](const Verb& verb) { return verb.name == name; });
  return found == kVerbs.end() ? nullptr : &*found;
}

}  // namespace tern::ctl
