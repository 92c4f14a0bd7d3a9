#include "tests/e2e/rank_process.h"

#include <cstdlib>
#include <ostream>
#include <sstream>

namespace tern::e2e {

std::string Reply::field(const std::string& key) const {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.rfind(key + "=", 0) == 0) return word.substr(key.size() + 1);
  }
  return "";
}

std::int64_t Reply::number(const std::string& key) const {
  const std::string value = field(key);
  return value.empty() ? -1 : std::strtoll(value.c_str(), nullptr, 10);
}

std::ostream& operator<<(std::ostream& out, const Reply& reply) {
  return out << "[" << reply.code << "] " << reply.text;
}

RankProcess::RankProcess(const DaemonProcess& daemon, uid_t user)
    : daemon_(&daemon),
      process_(TERN_E2E_RANK,
               user == 0 ? std::vector<std::string>{}
                         : std::vector<std::string>{"--user", std::to_string(user)},
               daemon.folder() + "/ranks.log") {}

void RankProcess::tell(const std::string& command) { process_.write_line(command); }

Reply RankProcess::reply(std::chrono::milliseconds patience) {
  const auto line = process_.read_line(patience);
  if (!line) return {-1, "no answer"};
  if (line->rfind("ok", 0) == 0) return {TERN_OK, line->size() > 3 ? line->substr(3) : ""};
  std::istringstream words(*line);
  std::string error;
  Reply reply;
  words >> error >> reply.code;
  std::getline(words >> std::ws, reply.text);
  return reply;
}

Reply RankProcess::connect(const std::string& job, std::uint64_t arena_bytes) {
  return ask("connect socket=" + daemon_->socket() + " job=" + job +
             " arena=" + std::to_string(arena_bytes));
}

Ranks::Ranks(Cluster& cluster, const std::vector<int>& ranks_per_node, const std::string& job,
             uid_t user) {
  for (std::size_t node = 0; node < ranks_per_node.size(); ++node) {
    for (int i = 0; i < ranks_per_node[node]; ++i) {
      ranks_.push_back(std::make_unique<RankProcess>(cluster[node], user));
      ranks_.back()->connect(job);
    }
  }
}

std::string Ranks::join(const std::string& name, const std::string& options, std::size_t mints_at) {
  const Reply minted = ranks_[mints_at]->ask("mint");
  if (!minted.ok()) return "mint: " + minted.text;
  id_ = minted.field("id");
  return rejoin(name, options);
}

std::string Ranks::rejoin(const std::string& name, const std::string& options) {
  const std::string join = "join group=" + name + " id=" + id_ +
                           " size=" + std::to_string(ranks_.size()) + " " + options + " rank=";
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks_[rank]->tell(join + std::to_string(rank));
  }
  std::string problems;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Reply joined = ranks_[rank]->reply();
    if (!joined.ok()) {
      problems += "rank " + std::to_string(rank) + ": " + std::to_string(joined.code) + " " +
                  joined.text + "; ";
    }
  }
  return problems;
}

void Ranks::tell_all(const std::string& command) {
  for (auto& rank : ranks_) rank->tell(command);
}

std::vector<Reply> Ranks::replies() {
  std::vector<Reply> replies;
  for (auto& rank : ranks_) replies.push_back(rank->reply());
  return replies;
}

void Ranks::replace(std::size_t rank, Cluster& cluster, std::size_t node, const std::string& job) {
  ranks_[rank] = std::make_unique<RankProcess>(cluster[node]);
  ranks_[rank]->connect(job);
}

std::string disagreement(const std::vector<Reply>& replies) {
  std::ostringstream text;
  for (std::size_t rank = 0; rank < replies.size(); ++rank) {
    const Reply& reply = replies[rank];
    if (!reply.ok()) {
      text << "rank " << rank << ": " << reply << "; ";
    } else if (reply.number("wrong") != 0) {
      text << "rank " << rank << " has wrong values: " << reply << "; ";
    } else if (reply.field("crc") != replies[0].field("crc")) {
      text << "rank " << rank << " has " << reply << ", rank 0 " << replies[0] << "; ";
    }
  }
  return text.str();
}

}  // namespace tern::e2e
