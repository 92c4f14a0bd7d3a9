#pragma once

// What the loopback transports, connections and acceptors of one network share.

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "net/loopback.h"

namespace tern::net {

using LoopbackBytes = std::vector<std::byte>;

// Two ends and what is under way to each of them.
struct LoopbackPipe {
  struct End {
    Endpoint at;
    std::deque<LoopbackBytes> arriving;
    bool gone = false;  // destroyed on this side
  };
  End ends[2];  // 0 connected, 1 accepted
  bool killed = false;
};

struct LoopbackAcceptor::Impl {
  struct Unfinished {
    std::shared_ptr<LoopbackPipe> pipe;
    std::uint64_t deadline_ns;
  };
  LoopbackNetwork::Impl& network;
  Endpoint at;
  const Clock& clock;
  AcceptorSettings settings;
  AcceptorSink& sink;
  std::deque<Unfinished> unfinished;

  bool examine(const Unfinished& candidate);
  void refuse(LoopbackPipe& pipe, Errc reason, const char* text, bool say_so);
};

struct LoopbackNetwork::Impl {
  std::map<Endpoint, LoopbackAcceptor::Impl*> acceptors;
  std::set<Endpoint> killed;
  std::set<std::pair<Endpoint, Endpoint>> partitions;
  std::vector<std::weak_ptr<LoopbackPipe>> pipes;
  std::vector<LoopbackBytes> spare;

  bool is_killed(const LoopbackPipe& pipe) const {
    return pipe.killed || killed.contains(pipe.ends[0].at) || killed.contains(pipe.ends[1].at);
  }
  bool is_partitioned(const LoopbackPipe& pipe) const {
    return !partitions.empty() &&
           partitions.contains(std::minmax(pipe.ends[0].at, pipe.ends[1].at));
  }
  LoopbackBytes take_bytes() {
    if (spare.empty()) return {};
    LoopbackBytes bytes = std::move(spare.back());
    spare.pop_back();
    bytes.clear();
    return bytes;
  }
  void give_back(LoopbackBytes bytes) { spare.push_back(std::move(bytes)); }
};

struct LoopbackIncoming final : Incoming {
  explicit LoopbackIncoming(std::shared_ptr<LoopbackPipe> pipe_in) : pipe(std::move(pipe_in)) {}
  ~LoopbackIncoming() override {
    if (pipe) pipe->ends[1].gone = true;
  }
  std::shared_ptr<LoopbackPipe> pipe;
};

}  // namespace tern::net
