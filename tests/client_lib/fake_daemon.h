#pragma once

// A daemon without network for tests of libtern: one thread, groups of one rank, an op ends by
// copying its input to its output, chunk by chunk on the lane that owns the chunk. What it does
// instead can be changed at any time by the test.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shm/packet_socket.h"
#include "shm/segment.h"
#include "shm/wakeup.h"

namespace tern::testing {

struct FakeOptions {
  std::uint32_t lanes = 2;
  std::uint32_t group_lanes = 2;
  std::uint32_t nodes = 1;
  std::uint64_t chunk_bytes = 1024;
  std::uint64_t max_ops_in_flight = 512;
  std::uint32_t spin_ns = 0;
  std::uint64_t next_sequence = 0;
  bool one_lane = false;
  // Takes ops whose memory is copied meanwhile, and holds them.
  bool progress = false;
  bool shares_down = false;
  bool pass_progress = false;
  bool regions = true;
  bool blocks = false;   // it takes client_blocks
  bool tunes = false;    // and chooses their recipe
  bool devices = false;  // it takes device_report
  std::uint64_t block_elements = 256;
  std::string block_recipe = "ef(3lc:s=1,scale=4096)";     // where it does not tune
  std::vector<std::string> recipes = {"raw", "ef(bf16)"};  // that it chooses among
  std::uint64_t last_common_op = 0;

  // Of its welcome.
  std::uint32_t features() const {
    std::uint32_t features = shm::kFeatureSplit;
    if (progress) features |= shm::kFeatureProgress;
    if (shares_down) features |= shm::kFeatureSharesDown;
    if (pass_progress) features |= shm::kFeaturePassProgress;
    if (regions) features |= shm::kFeatureRegions;
    if (blocks) features |= shm::kFeatureBlocks;
    if (tunes) features |= shm::kFeatureTunedBlocks;
    if (devices) features |= shm::kFeatureDevices;
    return features;
  }
};

enum class Answers { normal, none, garbage, wrong_kind, short_packet, hang_up, refuse };
enum class Ops { complete, hold, fail };

// A submitted entry and where it came from.
struct Seen {
  std::uint32_t lane;
  shm::SubmitEntry entry;
};

class FakeDaemon {
 public:
  explicit FakeDaemon(FakeOptions options = {});
  ~FakeDaemon();

  const std::string& path() const noexcept { return path_; }

  // ---- What it does from now on.
  void set_answers(Answers answers);
  void set_welcome_change(std::function<void(shm::WelcomePacket&, shm::SegmentHeader&)> change);
  void set_ops(Ops ops);
  void set_paused(bool paused);  // lanes take nothing out of their rings
  void hold_joins(bool hold);    // joins are answered when hold ends
  void hold_regions(bool hold);  // regions are made before the call that ends hold returns

  // ---- What it does now.
  void complete_held();
  // Of each op that it holds, lane by lane. Rings the doorbell afterwards.
  void with_held(const std::function<void(shm::Segment&, const Seen&)>& use);
  void complete_held_on_lane(std::uint32_t lane, Errc status, const char* detail);
  void inject(std::uint32_t lane, const shm::CompletionEntry& entry);
  // With its segment and its end of the notify pair.
  void with_last_client(const std::function<void(shm::Segment&, int)>& use);
  void corrupt_completion_ring(std::uint32_t lane) {
    with_last_client([lane](shm::Segment& segment, int notify_fd) {
      auto& tail = segment.header().lanes[lane].completion.tail;
      std::atomic_ref<std::uint64_t>(tail).store(1u << 30);
      shm::ring_doorbell(segment.header(), notify_fd);
    });
  }
  void set_cores_are_few(bool few);  // in the segments of all clients
  // Does nothing while the test does what is given.
  void hold(const std::function<void()>& meanwhile) {
    const std::lock_guard lock(mutex_);
    meanwhile();
  }
  void die();  // as a killed process: all descriptors and mappings go

  // ---- What it saw. The await functions return when it is so.
  std::vector<Seen> seen();
  void await_entries(std::size_t count);
  void await_requests(shm::PacketKind kind, std::size_t count);
  std::size_t request_count(shm::PacketKind kind);
  std::vector<shm::PacketKind> requests();  // in the order in which they came
  shm::HelloPacket last_hello();
  shm::GroupJoinPacket last_join();
  shm::GroupSplitPacket last_split();
  shm::TensorDeclarePacket last_declare();
  shm::DeviceReportPacket last_device() {
    const std::lock_guard lock(mutex_);
    return last_device_;
  }

 private:
  struct Session;
  struct Held {
    Session* session;
    Seen seen;
  };

  void run();
  void wait_for_work();
  void serve();
  void serve_requests(Session& session);
  void answer(Session& session, const shm::Packet& packet);
  void answer_normally(Session& session, const shm::PacketHeader& header,
                       const shm::Packet& packet);
  void create_region(Session& session, const shm::RegionCreatePacket& question);
  void welcome(Session& session, const shm::PacketHeader& header, const shm::Packet& packet);
  void joined(Session& session, std::uint64_t request);
  void done(Session& session, std::uint64_t request, Errc status, const char* detail);
  void serve_lane(Session& session, std::uint32_t lane);
  void take(Session& session, const Seen& seen);
  void cancel(Session& session, const Seen& seen);
  void copy_chunks(Session& session, const Seen& seen);
  void complete(Session& session, const Seen& seen, Errc status, const char* detail);
  void push(Session& session, std::uint32_t lane, const shm::CompletionEntry& entry);
  void poke();

  FakeOptions options_;
  std::string directory_;
  std::string path_;
  Fd control_;

  // Guards all below. The thread holds it except while it polls.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  Answers answers_ = Answers::normal;
  Ops ops_ = Ops::complete;
  bool paused_ = false;
  bool hold_joins_ = false;
  bool hold_regions_ = false;
  std::function<void(shm::WelcomePacket&, shm::SegmentHeader&)> welcome_change_;
  shm::PacketListener listener_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<Held> held_;
  std::vector<std::pair<Session*, std::uint64_t>> held_joins_;
  std::vector<std::pair<Session*, shm::RegionCreatePacket>> held_regions_;
  std::vector<Seen> seen_;
  std::vector<shm::PacketKind> requests_;
  shm::HelloPacket last_hello_{};
  shm::GroupJoinPacket last_join_{};
  shm::GroupSplitPacket last_split_{};
  shm::TensorDeclarePacket last_declare_{};
  shm::DeviceReportPacket last_device_{};
  std::uint64_t next_group_ = 1;
  std::uint32_t epoch_ = 0;

  std::thread thread_;
};

}  // namespace tern::testing
