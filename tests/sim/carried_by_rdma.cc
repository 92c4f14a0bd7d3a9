// The program's worlds run on queue pairs of the mock device: every connection begins on the
// loopback, which stands for TCP, and is moved to a queue pair as soon as both ends can.

#include <gtest/gtest.h>

#include <memory>

#include "cluster.h"
#include "net/event_loop.h"
#include "rdma/rdma_transport.h"
#include "tests/rdma/mock/fabric.h"

namespace tern::sim {
namespace {

// Few and small slots: a simulated daemon has many connections, and frames end everywhere.
struct Device {
  rdma::mock::Fabric fabric;
  net::EventLoop loop;
  rdma::RdmaSettings settings;
};

Device& device() {
  static Device only;
  return only;
}

[[maybe_unused]] const bool kIsCarried = [] {
  carriage().wrap = [](net::Transport& below, const Clock& clock) {
    Device& mock = device();
    mock.settings.node_directory = mock.fabric.nodes().string();
    mock.settings.receive_slots = 16;
    mock.settings.slot_bytes = 4096;
    return std::make_unique<rdma::RdmaTransport>(below, mock.loop, clock, mock.settings);
  };
  return true;
}();

TEST(CarriedByRdma, FramesOfLanesTravelOnQueuePairs) {
  const std::uint64_t pairs = device().fabric.calls.queue_pairs;
  const std::uint64_t sends = device().fabric.calls.sends;
  Cluster cluster({1, 1, 1});
  cluster.join();
  cluster.reduce(all_reduce(DType::f32, 50'000), inputs_of(DType::f32, 50'000, 3));
  cluster.forget_arenas();
  cluster.leave_all();
  EXPECT_GE(device().fabric.calls.queue_pairs - pairs, 6u);  // both ends of three
  // Two shares of the sum and its result, by slots of a page, at least.
  EXPECT_GT(device().fabric.calls.sends - sends, 50'000u * 4 * 2 / 4096);
}

}  // namespace
}  // namespace tern::sim
