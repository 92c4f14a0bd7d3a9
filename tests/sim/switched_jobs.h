#pragma once

// Jobs of daemons on a switched network, one rank of each on every node, and what an all_reduce of
// them takes of the network.

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "client.h"
#include "world.h"

namespace tern::sim {

class SwitchedJobs {
 public:
  struct Shape {
    std::uint32_t nodes = 4;
    std::uint32_t jobs = 1;
    std::uint32_t rounds = 2;  // chunks that each node owns
    std::uint64_t chunk_bytes = 256 << 10;
    SwitchShape network;
    std::uint64_t switch_port_bytes = 256 << 10;  // that daemons know of; 0: nothing
    std::uint32_t slabs = 64;  // for what comes from other nodes, and for what goes there
    std::optional<HostCable> last_cable;  // of the last node
    std::uint64_t seed = 1;
  };
  struct Measured {
    std::uint64_t ns = 0;  // from the first submission to the last completion
    NetworkCounts counts;
  };

  explicit SwitchedJobs(const Shape& shape) : world(shape.seed, shape.network), shape_(shape) {
    DaemonShape daemon;
    daemon.chunk_bytes = shape.chunk_bytes;
    daemon.result_slabs = 32;
    daemon.receive_slabs = daemon.send_slabs = shape.slabs;
    daemon.switch_port_bytes = shape.switch_port_bytes;
    for (std::uint32_t node = 0; node < shape.nodes; ++node) world.add_daemon(daemon);
    if (shape.last_cable) {
      world.switched->set_cable(world.daemon(shape.nodes - 1).at.host, *shape.last_cable);
    }
    world.actors = [this] {
      int work = 0;
      for (const auto& client : world.clients()) work += client->ready() ? client->poll() : 0;
      return work;
    };
    for (std::size_t i = 0; i < elements(); ++i) {
      ramp_.push_back(static_cast<float>(i % kPeriod));
    }
    const auto nodes = static_cast<float>(shape.nodes);
    for (const float value : ramp_) sum_.push_back(nodes * value + nodes * (nodes - 1) / 2);
    for (std::uint32_t job = 0; job < shape.jobs; ++job) join("job" + std::to_string(job));
  }

  // Of f32, in whole chunks.
  std::uint64_t elements() const {
    return std::uint64_t{shape_.rounds} * shape_.nodes * shape_.chunk_bytes / sizeof(float);
  }
  std::uint64_t bytes() const { return elements() * sizeof(float); }

  // All jobs reduce; the last node's ranks come so much later than the others.
  Measured all_reduce(std::uint64_t late_ns = 0) {
    world.switched->forget_counts();
    const std::uint64_t begin = world.clock.now_ns();
    for (auto& ranks : jobs_) {
      for (std::uint32_t rank = 0; rank + 1 < shape_.nodes; ++rank) submit(*ranks[rank], rank);
    }
    if (late_ns > 0) world.run_for(late_ns);
    for (auto& ranks : jobs_) submit(*ranks.back(), shape_.nodes - 1);
    for (auto& ranks : jobs_) {
      for (Client* client : ranks) {
        EXPECT_TRUE(world.run_until([client] { return client->in_flight() == 0; }, 1000 * kSecond));
      }
    }
    const Measured measured{world.clock.now_ns() - begin, world.switched->counts()};
    for (auto& ranks : jobs_) {
      for (Client* client : ranks) expect_sum(*client);
    }
    return measured;
  }

  World world;

 private:
  static constexpr std::size_t kPeriod = 1021;  // of the values, which are small whole numbers

  void join(const std::string& name) {
    std::vector<Client*> ranks;
    for (std::uint32_t node = 0; node < shape_.nodes; ++node) {
      ranks.push_back(&world.connect(node, name, bytes() + (1 << 20)));
    }
    for (Client* client : ranks) EXPECT_TRUE(world.run_until([&] { return client->ready(); }));
    const std::uint64_t mint = ranks[0]->mint();
    EXPECT_TRUE(world.run_until([&] { return ranks[0]->answered(mint); }));
    const std::string id = ranks[0]->answer<shm::GroupMintedPacket>(mint)->id;
    std::vector<std::uint64_t> requests;
    for (std::uint32_t rank = 0; rank < shape_.nodes; ++rank) {
      requests.push_back(ranks[rank]->join(id, rank, shape_.nodes));
    }
    for (std::uint32_t rank = 0; rank < shape_.nodes; ++rank) {
      EXPECT_TRUE(world.run_until([&] { return ranks[rank]->answered(requests[rank]); }));
      EXPECT_TRUE(ranks[rank]->adopt_join(requests[rank], rank))
          << ranks[rank]->status_of(requests[rank]).detail;
    }
    jobs_.push_back(std::move(ranks));
  }

  void submit(Client& client, std::uint32_t rank) {
    client.forget_arena();
    OpRequest request;
    request.count = elements();
    request.input = request.output = client.allocate(bytes());
    float* const values = values_of(client, request.input);
    const auto shift = static_cast<float>(rank);
    for (std::size_t i = 0; i < ramp_.size(); ++i) values[i] = ramp_[i] + shift;
    ticket_ = client.submit(request);
  }
  void expect_sum(Client& client) {
    ASSERT_EQ(client.result(ticket_).status, Errc::ok) << client.result(ticket_).detail;
    // Bit for bit; comparing elements would take as long as sending them.
    EXPECT_EQ(std::memcmp(values_of(client, 0), sum_.data(), bytes()), 0);
  }
  static float* values_of(Client& client, std::uint64_t offset) {
    return reinterpret_cast<float*>(client.at(offset));
  }

  Shape shape_;
  std::vector<float> ramp_;                 // what rank 0 gives; rank r gives r more
  std::vector<float> sum_;                  // of what all ranks give
  std::vector<std::vector<Client*>> jobs_;  // ranks
  std::uint64_t ticket_ = 0;                // of the last op: that of all ranks
};

}  // namespace tern::sim
