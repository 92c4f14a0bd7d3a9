#include "tests/client_lib/fake_daemon.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shm/sharding.h"
#include "tests/client_lib/fake_replies.h"

namespace tern::testing {

using shm::PacketKind;

struct FakeDaemon::Session {
  shm::PacketSocket socket;
  shm::Segment segment;
  std::vector<shm::Segment> regions;
  Fd notify;
  std::vector<Fd> eventfds;
  std::vector<shm::RingConsumer<shm::SubmitEntry>> submitted;
  std::vector<shm::RingProducer<shm::CompletionEntry>> completed;
  bool gone = false;
};

namespace {

template <typename T>
void send(shm::PacketSocket& socket, const T& packet) {
  (void)socket.send(shm::packet_bytes(packet));
}

// FNV-1a, as good as any hash for an id that only must not be 0.
std::uint64_t tensor_id(const char* name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (; *name != '\0'; ++name) {
    hash = (hash ^ static_cast<std::uint64_t>(static_cast<unsigned char>(*name))) * 0x100000001b3u;
  }
  return hash | 1;
}

}  // namespace

FakeDaemon::FakeDaemon(FakeOptions options) : options_(std::move(options)) {
  directory_ = (std::filesystem::temp_directory_path() / "tern-fake-XXXXXX").string();
  if (::mkdtemp(directory_.data()) == nullptr) std::abort();
  path_ = directory_ + "/sock";
  control_ = std::move(*shm::make_eventfd());
  listener_ = std::move(*shm::PacketListener::bind(path_, 0600));
  thread_ = std::thread([this] { run(); });
}

FakeDaemon::~FakeDaemon() {
  die();
  std::filesystem::remove_all(directory_);
}

void FakeDaemon::die() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    poke();
  }
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  held_.clear();
  held_joins_.clear();
  held_regions_.clear();
  sessions_.clear();
  listener_ = shm::PacketListener();
}

void FakeDaemon::poke() {
  const std::uint64_t one = 1;
  const ssize_t rc = ::write(control_.get(), &one, sizeof one);
  (void)rc;
}

void FakeDaemon::run() {
  for (;;) {
    wait_for_work();
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    serve();
    changed_.notify_all();
  }
}

// Sleeps as a lane does: announce, look once more, poll.
void FakeDaemon::wait_for_work() {
  std::vector<pollfd> fds;
  bool work = false;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return;
    fds.push_back({control_.get(), POLLIN, 0});
    fds.push_back({listener_.fd(), POLLIN, 0});
    for (auto& session : sessions_) {
      if (session->gone) continue;
      fds.push_back({session->socket.fd(), POLLIN, 0});
      for (std::uint32_t lane = 0; lane < session->submitted.size(); ++lane) {
        fds.push_back({session->eventfds[lane].get(), POLLIN, 0});
        shm::announce_sleep(session->segment.lane_rings(lane));
        work = work || (!paused_ && !session->submitted[lane].empty());
      }
    }
  }
  if (!work) (void)::poll(fds.data(), fds.size(), -1);
}

void FakeDaemon::serve() {
  shm::drain_eventfd(control_.get());
  while (Result<shm::PacketSocket> socket = listener_.accept()) {
    sessions_.push_back(std::make_unique<Session>());
    sessions_.back()->socket = std::move(*socket);
  }
  for (auto& session : sessions_) {
    for (std::uint32_t lane = 0; lane < session->submitted.size(); ++lane) {
      shm::end_sleep(session->segment.lane_rings(lane));
      shm::drain_eventfd(session->eventfds[lane].get());
      if (!paused_) serve_lane(*session, lane);
    }
    if (!session->gone) serve_requests(*session);
  }
  if (!hold_joins_) {
    for (const auto& [session, request] : std::exchange(held_joins_, {})) joined(*session, request);
  }
}

void FakeDaemon::serve_requests(Session& session) {
  for (;;) {
    Result<shm::Packet> packet = session.socket.receive();
    if (!packet) {
      session.gone = packet.error().code != Errc::would_block;
      if (session.gone) session.socket.close();
      return;
    }
    answer(session, *packet);
    if (session.gone) return;
  }
}

void FakeDaemon::answer(Session& session, const shm::Packet& packet) {
  shm::PacketHeader header{};
  ASSERT_GE(packet.bytes.size(), sizeof header);
  std::memcpy(&header, packet.bytes.data(), sizeof header);
  EXPECT_EQ(header.magic, shm::kPacketMagic);
  const auto kind = static_cast<PacketKind>(header.kind);
  requests_.push_back(kind);
  const std::vector<std::byte> garbage(37, std::byte{0xa5});
  switch (answers_) {
    case Answers::normal:
      return answer_normally(session, header, packet);
    case Answers::none:
      return;
    case Answers::garbage:
      (void)session.socket.send(garbage);
      return;
    case Answers::wrong_kind:
      return send(session.socket,
                  shm::make_packet<shm::GroupLeavePacket>(PacketKind::group_leave, header.request));
    case Answers::short_packet:
      return send(session.socket,
                  shm::make_packet<shm::PacketHeader>(PacketKind::done, header.request));
    case Answers::hang_up:
      session.gone = true;
      return session.socket.close();
    case Answers::refuse:
      return done(session, header.request, Errc::quota_exceeded, "only 3 widgets are allowed");
  }
}

void FakeDaemon::answer_normally(Session& session, const shm::PacketHeader& header,
                                 const shm::Packet& packet) {
  const std::uint64_t request = header.request;
  switch (static_cast<PacketKind>(header.kind)) {
    case PacketKind::hello:
      return welcome(session, header, packet);
    case PacketKind::group_mint: {
      auto minted = shm::make_packet<shm::GroupMintedPacket>(PacketKind::group_minted, request);
      std::strcpy(minted.id, "tern1:fake:secret");
      return send(session.socket, minted);
    }
    case PacketKind::group_join:
      ASSERT_TRUE(shm::read_packet(packet.bytes, last_join_));
      if (std::strcmp(last_join_.id, "tern1:fake:secret") != 0) {
        return done(session, request, Errc::bad_secret, "no such secret");
      }
      held_joins_.emplace_back(&session, request);
      return;
    case PacketKind::group_split: {
      ASSERT_TRUE(shm::read_packet(packet.bytes, last_split_));
      auto reply =
          shm::make_packet<shm::GroupSplitReplyPacket>(PacketKind::group_split_reply, request);
      if (last_split_.color >= 0) {
        reply.group = next_group_++;
        reply.node_count = static_cast<std::int32_t>(options_.nodes);
        reply.epoch = 1;
        reply.lane_count = options_.group_lanes;
        reply.chunk_bytes = options_.chunk_bytes;
        reply.max_ops_in_flight = options_.max_ops_in_flight;
        reply.size = 1;
      }
      return send(session.socket, reply);
    }
    case PacketKind::tensor_declare: {
      ASSERT_TRUE(shm::read_packet(packet.bytes, last_declare_));
      auto declared =
          shm::make_packet<shm::TensorDeclaredPacket>(PacketKind::tensor_declared, request);
      declared.tensor = tensor_id(last_declare_.name);
      declared.next_sequence = options_.next_sequence;
      declared.one_lane = options_.one_lane ? 1 : 0;
      return send(session.socket, declared);
    }
    case PacketKind::tensor_blocks:
      return send(session.socket, blocks_reply(request, options_.block_elements, options_.tunes,
                                               options_.tunes ? "raw" : options_.block_recipe));
    case PacketKind::tensor_recipes:
      return send(session.socket, recipes_reply(request, options_.recipes));
    case PacketKind::tensor_stats:
      return send(session.socket, stats_reply(request));
    case PacketKind::device_report:
      ASSERT_TRUE(shm::read_packet(packet.bytes, last_device_));
      return;
    case PacketKind::region_create: {
      shm::RegionCreatePacket question;
      ASSERT_TRUE(shm::read_packet(packet.bytes, question));
      if (!hold_regions_) return create_region(session, question);
      held_regions_.emplace_back(&session, question);
      return;
    }
    default:
      return done(session, request, Errc::ok, "");
  }
}

void FakeDaemon::create_region(Session& session, const shm::RegionCreatePacket& question) {
  session.regions.push_back(std::move(*shm::Segment::create_region(question.bytes)));
  const shm::Segment& region = session.regions.back();
  auto created = shm::make_packet<shm::RegionCreatedPacket>(PacketKind::region_created,
                                                            question.header.request);
  created.region = static_cast<std::uint32_t>(session.regions.size());
  created.bytes = region.arena_bytes();
  created.segment_bytes = region.segment_bytes();
  const int fds[] = {region.fd()};
  ASSERT_TRUE(session.socket.send(shm::packet_bytes(created), fds));
}

void FakeDaemon::welcome(Session& session, const shm::PacketHeader& header,
                         const shm::Packet& packet) {
  ASSERT_TRUE(shm::read_packet(packet.bytes, last_hello_));
  session.segment =
      std::move(*shm::Segment::create(options_.lanes, last_hello_.arena_bytes, options_.spin_ns));
  auto pair = std::move(*shm::make_notify_pair());
  session.notify = std::move(pair.first);
  std::vector<int> fds{session.segment.fd(), pair.second.get()};
  for (std::uint32_t lane = 0; lane < options_.lanes; ++lane) {
    session.eventfds.push_back(std::move(*shm::make_eventfd()));
    fds.push_back(session.eventfds.back().get());
    session.submitted.emplace_back(session.segment.submit_ring(lane));
    session.completed.emplace_back(session.segment.completion_ring(lane));
  }
  auto welcome = shm::make_packet<shm::WelcomePacket>(PacketKind::welcome, header.request);
  welcome.abi = wire::kShmAbi;
  welcome.lane_count = static_cast<std::uint16_t>(options_.lanes);
  welcome.features = options_.features();
  welcome.segment_bytes = session.segment.segment_bytes();
  if (welcome_change_) welcome_change_(welcome, session.segment.header());
  ASSERT_TRUE(session.socket.send(shm::packet_bytes(welcome), fds));
}

void FakeDaemon::joined(Session& session, std::uint64_t request) {
  auto joined = shm::make_packet<shm::GroupJoinedPacket>(PacketKind::group_joined, request);
  joined.group = next_group_++;
  joined.node = 0;
  joined.node_count = static_cast<std::int32_t>(options_.nodes);
  joined.epoch = ++epoch_;
  joined.lane_count = options_.group_lanes;
  joined.chunk_bytes = options_.chunk_bytes;
  joined.max_ops_in_flight = options_.max_ops_in_flight;
  joined.last_common_op = options_.last_common_op;
  send(session.socket, joined);
}

void FakeDaemon::done(Session& session, std::uint64_t request, Errc status, const char* detail) {
  auto done = shm::make_packet<shm::DonePacket>(PacketKind::done, request);
  done.status = static_cast<std::int32_t>(status);
  std::strcpy(done.detail, detail);
  send(session.socket, done);
}

void FakeDaemon::serve_lane(Session& session, std::uint32_t lane) {
  Seen seen{lane, {}};
  while (session.submitted[lane].try_pop(seen.entry) == shm::RingResult::ok) {
    seen_.push_back(seen);
    take(session, seen);
  }
}

void FakeDaemon::take(Session& session, const Seen& seen) {
  if (seen.entry.kind == static_cast<std::uint16_t>(shm::OpKind::cancel)) {
    return cancel(session, seen);
  }
  const bool copied_meanwhile = (seen.entry.flags & shm::kEntryHasProgress) != 0;
  switch (copied_meanwhile ? Ops::hold : ops_) {
    case Ops::hold:
      held_.push_back({&session, seen});
      return;
    case Ops::fail:
      return complete(session, seen, Errc::mismatch, "rank 1 said f32, rank 0 said f16");
    case Ops::complete:
      copy_chunks(session, seen);
      return complete(session, seen, Errc::ok, "");
  }
}

void FakeDaemon::cancel(Session& session, const Seen& seen) {
  const auto found = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
    return held.session == &session && held.seen.lane == seen.lane &&
           held.seen.entry.ticket == seen.entry.ticket;
  });
  if (found == held_.end()) return;
  complete(session, found->seen, Errc::cancelled, "cancelled by rank 0");
  held_.erase(found);
}

// The lane's share alone, so that a wrong set of lanes shows as a wrong result.
void FakeDaemon::copy_chunks(Session& session, const Seen& seen) {
  const shm::SubmitEntry& entry = seen.entry;
  const auto dtype = static_cast<DType>(entry.dtype);
  const shm::Sharding sharding =
      shm::make_sharding({.tensor = entry.tensor,
                          .sequence = entry.sequence,
                          .count = entry.count,
                          .dtype = dtype,
                          .chunk_bytes = options_.chunk_bytes,
                          .nodes = options_.nodes,
                          .lanes = options_.group_lanes,
                          .one_lane = entry.tensor != 0 && options_.one_lane});
  const auto memory = [&](std::uint32_t region) {
    return region == 0 ? session.segment.arena().data()
                       : session.regions[region - 1].arena().data();
  };
  std::byte* const output = memory(entry.output_region) + entry.output_offset;
  const std::byte* const input = memory(entry.input_region) + entry.input_offset;
  for (std::uint64_t chunk = 0; chunk < sharding.chunk_count; ++chunk) {
    if (sharding.lane(chunk) != seen.lane) continue;
    const std::uint64_t begin = sharding.chunk_begin(chunk) * dtype_bytes(dtype);
    std::memmove(output + begin, input + begin, sharding.chunk_size(chunk) * dtype_bytes(dtype));
  }
}

void FakeDaemon::complete(Session& session, const Seen& seen, Errc status, const char* detail) {
  shm::CompletionEntry entry{};
  entry.ticket = seen.entry.ticket;
  entry.status = static_cast<std::int32_t>(status);
  std::strncpy(entry.detail, detail, sizeof entry.detail - 1);
  push(session, seen.lane, entry);
}

void FakeDaemon::push(Session& session, std::uint32_t lane, const shm::CompletionEntry& entry) {
  EXPECT_EQ(session.completed[lane].try_push(entry), shm::RingResult::ok);
  shm::ring_doorbell(session.segment.header(), session.notify.get());
}

// ---- Called by the test's thread.

void FakeDaemon::set_answers(Answers answers) {
  const std::lock_guard lock(mutex_);
  answers_ = answers;
}

void FakeDaemon::set_welcome_change(
    std::function<void(shm::WelcomePacket&, shm::SegmentHeader&)> change) {
  const std::lock_guard lock(mutex_);
  welcome_change_ = std::move(change);
}

void FakeDaemon::set_ops(Ops ops) {
  const std::lock_guard lock(mutex_);
  ops_ = ops;
}

void FakeDaemon::set_paused(bool paused) {
  const std::lock_guard lock(mutex_);
  paused_ = paused;
  poke();
}

void FakeDaemon::hold_joins(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_joins_ = hold;
  poke();
}

void FakeDaemon::hold_regions(bool hold) {
  const std::lock_guard lock(mutex_);
  hold_regions_ = hold;
  if (hold) return;
  for (const auto& [session, question] : std::exchange(held_regions_, {})) {
    create_region(*session, question);
  }
}

void FakeDaemon::complete_held() {
  const std::lock_guard lock(mutex_);
  for (const Held& held : std::exchange(held_, {})) {
    copy_chunks(*held.session, held.seen);
    complete(*held.session, held.seen, Errc::ok, "");
  }
}

void FakeDaemon::with_held(const std::function<void(shm::Segment&, const Seen&)>& use) {
  const std::lock_guard lock(mutex_);
  for (const Held& held : held_) use(held.session->segment, held.seen);
  shm::ring_doorbell(sessions_.back()->segment.header(), sessions_.back()->notify.get());
}

void FakeDaemon::complete_held_on_lane(std::uint32_t lane, Errc status, const char* detail) {
  const std::lock_guard lock(mutex_);
  for (const Held& held : std::exchange(held_, {})) {
    if (held.seen.lane != lane) {
      held_.push_back(held);
      continue;
    }
    complete(*held.session, held.seen, status, detail);
  }
}

void FakeDaemon::inject(std::uint32_t lane, const shm::CompletionEntry& entry) {
  const std::lock_guard lock(mutex_);
  push(*sessions_.back(), lane, entry);
}

void FakeDaemon::with_last_client(const std::function<void(shm::Segment&, int)>& use) {
  const std::lock_guard lock(mutex_);
  use(sessions_.back()->segment, sessions_.back()->notify.get());
}

void FakeDaemon::set_cores_are_few(bool few) {
  const std::lock_guard lock(mutex_);
  for (const auto& session : sessions_) session->segment.set_cores_are_few(few);
}

std::vector<Seen> FakeDaemon::seen() {
  const std::lock_guard lock(mutex_);
  return seen_;
}

void FakeDaemon::await_entries(std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return seen_.size() >= count; });
}

void FakeDaemon::await_requests(PacketKind kind, std::size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return static_cast<std::size_t>(std::count(requests_.begin(), requests_.end(), kind)) >= count;
  });
}

std::size_t FakeDaemon::request_count(PacketKind kind) {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count(requests_.begin(), requests_.end(), kind));
}

std::vector<shm::PacketKind> FakeDaemon::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

shm::HelloPacket FakeDaemon::last_hello() {
  const std::lock_guard lock(mutex_);
  return last_hello_;
}

shm::GroupJoinPacket FakeDaemon::last_join() {
  const std::lock_guard lock(mutex_);
  return last_join_;
}

shm::GroupSplitPacket FakeDaemon::last_split() {
  const std::lock_guard lock(mutex_);
  return last_split_;
}

shm::TensorDeclarePacket FakeDaemon::last_declare() {
  const std::lock_guard lock(mutex_);
  return last_declare_;
}

}  // namespace tern::testing
