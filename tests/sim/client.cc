#include "client.h"

#include <fcntl.h>

#include <bit>

#include "base/check.h"
#include "plan/cut.h"
#include "plan/plans.h"
#include "world.h"

namespace tern::sim {

using shm::PacketKind;

Client::Client(World& world, std::size_t daemon, std::uint64_t id, shm::PeerCredentials credentials)
    : world_(world), daemon_(daemon), id_(id) {
  world_.daemon(daemon_).wake_conductor([&](daemon::Conductor& conductor) {
    conductor.on_client_connected(id_, std::move(credentials));
  });
}

template <typename Packet>
std::uint64_t Client::send(const Packet& packet) {
  if (!lost_) {
    world_.daemon(daemon_).wake_conductor([&](daemon::Conductor& conductor) {
      conductor.on_client_packet(id_, shm::packet_bytes(packet));
    });
  }
  return next_request_++;
}

void Client::hello(const std::string& job, std::uint64_t arena_bytes) {
  auto packet = shm::make_packet<shm::HelloPacket>(PacketKind::hello, next_request_);
  packet.abi_min = packet.abi_max = wire::kShmAbi;
  packet.arena_bytes = arena_bytes;
  std::strncpy(packet.job, job.c_str(), sizeof(packet.job) - 1);
  send(packet);
}

std::uint64_t Client::mint() {
  return send(shm::make_packet<shm::PacketHeader>(PacketKind::group_mint, next_request_));
}

std::uint64_t Client::join(const std::string& id, std::uint32_t new_rank, std::uint32_t new_size,
                           const JoinOptions& options) {
  size = new_size;
  auto packet = shm::make_packet<shm::GroupJoinPacket>(PacketKind::group_join, next_request_);
  std::strncpy(packet.id, id.c_str(), sizeof(packet.id) - 1);
  packet.rank = static_cast<std::int32_t>(new_rank);
  packet.size = static_cast<std::int32_t>(new_size);
  packet.verify = options.verify ? 1 : 0;
  packet.timeout_ms = options.timeout_ms;
  packet.op_timeout_ms = options.op_timeout_ms;
  packet.completed_ops = options.completed_ops;
  return send(packet);
}

std::uint64_t Client::split_of(std::uint64_t parent, std::int32_t color, std::int32_t key,
                               const JoinOptions& options) {
  auto packet = shm::make_packet<shm::GroupSplitPacket>(PacketKind::group_split, next_request_);
  packet.group = parent;
  packet.color = color;
  packet.key = key;
  packet.verify = options.verify ? 1 : 0;
  packet.timeout_ms = options.timeout_ms;
  packet.op_timeout_ms = options.op_timeout_ms;
  return send(packet);
}

std::uint64_t Client::leave() {
  auto packet = shm::make_packet<shm::GroupLeavePacket>(PacketKind::group_leave, next_request_);
  packet.group = group.group;
  return send(packet);
}

std::uint64_t Client::declare(const TensorSpec& spec) {
  auto packet =
      shm::make_packet<shm::TensorDeclarePacket>(PacketKind::tensor_declare, next_request_);
  packet.group = group.group;
  packet.count = spec.count;
  packet.dtype = static_cast<std::uint8_t>(spec.dtype);
  packet.role = static_cast<std::uint8_t>(spec.role);
  packet.exempt = spec.exempt ? 1 : 0;
  packet.client_blocks = spec.client_blocks ? spec.blocks_form : 0;
  std::strncpy(packet.name, spec.name.c_str(), sizeof(packet.name) - 1);
  std::strncpy(packet.recipe, spec.recipe.c_str(), sizeof(packet.recipe) - 1);
  return send(packet);
}

std::uint64_t Client::move_state(std::uint64_t tensor, shm::StateAction action,
                                 std::uint64_t offset, std::uint64_t bytes) {
  auto packet = shm::make_packet<shm::TensorStatePacket>(PacketKind::tensor_state, next_request_);
  packet.group = group.group;
  packet.tensor = tensor;
  packet.offset = offset;
  packet.bytes = bytes;
  packet.action = static_cast<std::uint32_t>(action);
  return send(packet);
}

std::uint64_t Client::release(std::uint64_t tensor) {
  auto packet =
      shm::make_packet<shm::TensorReleasePacket>(PacketKind::tensor_release, next_request_);
  packet.group = group.group;
  packet.tensor = tensor;
  return send(packet);
}

std::uint64_t Client::ask_of(shm::PacketKind kind, std::uint64_t tensor) {
  auto packet = shm::make_packet<shm::TensorReleasePacket>(kind, next_request_);
  packet.group = group.group;
  packet.tensor = tensor;
  return send(packet);
}

std::uint64_t Client::create_region(std::uint64_t bytes) {
  auto packet = shm::make_packet<shm::RegionCreatePacket>(PacketKind::region_create, next_request_);
  packet.bytes = bytes;
  return send(packet);
}

std::uint64_t Client::about_region(shm::PacketKind kind, std::uint32_t region) {
  auto packet = shm::make_packet<shm::RegionPacket>(kind, next_request_);
  packet.region = region;
  return send(packet);
}

std::uint64_t Client::goodbye() {
  return send(shm::make_packet<shm::PacketHeader>(PacketKind::goodbye, next_request_));
}

void Client::on_answer(std::span<const std::byte> packet, std::span<const int> descriptors) {
  shm::PacketHeader header{};
  std::memcpy(&header, packet.data(), sizeof(header));
  answers_[header.request].assign(packet.begin(), packet.end());
  shm::RegionCreatedPacket created;
  if (header.kind == static_cast<std::uint16_t>(PacketKind::region_created) &&
      shm::read_packet(packet, created)) {
    auto mapped = shm::Segment::map_region(Fd(::fcntl(descriptors[0], F_DUPFD_CLOEXEC, 0)),
                                           created.segment_bytes);
    TERN_CHECK(mapped.has_value() && mapped->arena_bytes() == created.bytes);
    TERN_CHECK(shm::populate(mapped->arena()));
    regions_[created.region] = std::move(*mapped);
    return;
  }
  shm::WelcomePacket welcome;
  if (header.kind != static_cast<std::uint16_t>(PacketKind::welcome) ||
      !shm::read_packet(packet, welcome)) {
    return;
  }
  auto mapped =
      shm::Segment::map(Fd(::fcntl(descriptors[0], F_DUPFD_CLOEXEC, 0)), welcome.segment_bytes);
  TERN_CHECK(mapped.has_value());
  segment_ = std::move(*mapped);
  places_ = ArenaPlaces(segment_.arena());
  for (std::uint32_t lane = 0; lane < segment_.lane_count(); ++lane) {
    submissions_.emplace_back(segment_.submit_ring(lane));
    completions_.emplace_back(segment_.completion_ring(lane));
  }
}

OpResult Client::status_of(std::uint64_t request) const {
  const auto done = answer<shm::DonePacket>(request);
  if (!done) return {};
  return {static_cast<Errc>(done->status), done->detail, 0};
}

bool Client::adopt_join(std::uint64_t request, std::uint32_t new_rank) {
  const auto joined = answer<shm::GroupJoinedPacket>(request);
  if (!joined) return false;
  group = *joined;
  rank = new_rank;
  anonymous_ = 0;
  tensors_.clear();
  return true;
}

bool Client::adopt_split(std::uint64_t request) {
  const auto reply = answer<shm::GroupSplitReplyPacket>(request);
  if (!reply || reply->group == 0) return false;
  group.group = reply->group;
  group.node = reply->node;
  group.node_count = reply->node_count;
  group.epoch = reply->epoch;
  group.lane_count = reply->lane_count;
  group.chunk_bytes = reply->chunk_bytes;
  group.eager_bytes = reply->eager_bytes;
  group.max_ops_in_flight = reply->max_ops_in_flight;
  rank = static_cast<std::uint32_t>(reply->rank);
  size = static_cast<std::uint32_t>(reply->size);
  anonymous_ = 0;
  tensors_.clear();
  return true;
}

Tensor* Client::adopt_declare(std::uint64_t request, const TensorSpec& spec) {
  const auto declared = answer<shm::TensorDeclaredPacket>(request);
  if (!declared) return nullptr;
  return &(tensors_[spec.name] =
               Tensor{spec, declared->tensor, declared->next_sequence, declared->one_lane != 0});
}

plan::Shape OpRequest::shape_for(std::uint32_t rank, std::uint32_t ranks) const {
  plan::Shape shape;
  shape.count = count;
  shape.dtype = dtype;
  shape.reduction = reduction;
  shape.root = root;
  shape.rank = rank;
  shape.ranks = ranks;
  shape.counts = counts.empty() ? nullptr : counts.data();
  return shape;
}

std::uint32_t Client::lanes(const OpRequest& op, std::uint64_t tensor, std::uint64_t sequence,
                            bool one_lane) const {
  // Of a number that is no plan's: as an all_reduce is cut.
  const plan::Plan* const found = plan::find(static_cast<std::uint16_t>(op.kind));
  return plan::lanes(found != nullptr ? *found : plan::kAllReduce, op.shape_for(rank, size),
                     {.tensor = tensor,
                      .sequence = sequence,
                      .chunk_bytes = group.chunk_bytes,
                      .nodes = static_cast<std::uint32_t>(group.node_count),
                      .lanes = group.lane_count,
                      .one_lane = one_lane});
}

std::uint64_t Client::submit(const OpRequest& op, Tensor* tensor) {
  const plan::Plan* const plan = plan::find(static_cast<std::uint16_t>(op.kind));
  if (plan != nullptr && plan->passes()) return submit_as(op, 0, op.tag, false);
  if (tensor == nullptr) return submit_as(op, 0, anonymous_++, false);
  return submit_as(op, tensor->id, tensor->next_use++, tensor->one_lane);
}

std::uint64_t Client::submit_as(const OpRequest& op, std::uint64_t tensor, std::uint64_t sequence,
                                bool one_lane) {
  shm::SubmitEntry entry;
  std::memset(&entry, 0, sizeof(entry));
  entry.ticket = next_ticket_++;
  entry.kind = static_cast<std::uint16_t>(op.kind);
  entry.dtype = static_cast<std::uint8_t>(op.dtype);
  entry.reduction = static_cast<std::uint8_t>(op.reduction);
  for (const auto& [name, known] : tensors_) {
    if (known.id == tensor) entry.role = static_cast<std::uint8_t>(known.spec.role);
  }
  entry.group = group.group;
  entry.tensor = tensor;
  entry.sequence = sequence;
  entry.count = op.count;
  entry.input_offset = op.input;
  entry.output_offset = op.output;
  entry.input_region = op.input_region;
  entry.output_region = op.output_region;
  entry.root = op.root;
  entry.priority = op.priority;
  entry.prescale_bits = std::bit_cast<std::uint32_t>(op.prescale);
  entry.state_scale_bits = std::bit_cast<std::uint32_t>(op.state_scale);
  std::strncpy(entry.recipe, op.recipe.c_str(), sizeof(entry.recipe) - 1);
  if (!op.counts.empty()) {
    entry.flags = shm::kEntryHasCounts;
    entry.counts_offset = allocate(op.counts.size() * sizeof(std::uint64_t));
    std::memcpy(at(entry.counts_offset), op.counts.data(),
                op.counts.size() * sizeof(std::uint64_t));
  }
  if (op.has_blocks) entry.flags |= shm::kEntryHasBlocks;
  if (op.encoded_by) {
    entry.encoded_by = op.encoded_by->packed();
    entry.encoded_elements = op.encoded.elements;
    entry.encoded_energy_bits = std::bit_cast<std::uint64_t>(op.encoded.energy);
    entry.encoded_residual_bits = std::bit_cast<std::uint64_t>(op.encoded.residual_energy);
    entry.encoded_ns = op.encoded_ns;
  }
  Waiting& waiting = waiting_[entry.ticket];
  if (copying.seed != 0) begin_copies(op, waiting, entry);
  const std::uint32_t used = lanes(op, tensor, sequence, one_lane);
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    if ((used >> lane & 1u) == 0) continue;
    ++waiting.lanes_left;
    push_raw(lane, entry);
  }
  if (lost_) fail_all_tickets();
  return entry.ticket;
}

void Client::begin_copies(const OpRequest& op, Waiting& waiting, shm::SubmitEntry& entry) {
  const plan::Plan* const plan = plan::find(entry.kind);
  if (plan == nullptr || plan->work == plan::Work::none) return;
  const plan::Extents extents = plan->extents(op.shape_for(rank, size));
  const std::uint64_t element = dtype_bytes(op.dtype);
  const shm::CopyProgress::Shape shape{group.lane_count, 64};
  entry.flags |= shm::kEntryHasProgress;
  entry.progress_offset = allocate(shape.bytes());
  entry.progress_records = shape.records;
  std::memset(at(entry.progress_offset), 0, shape.bytes());
  Copier::Memory memory{{at(op.input), extents.input.count * element},
                        {at(op.output), extents.output.count * element},
                        {}};
  // Libraries of older versions copy it as it lies.
  if (plan->sends_shares_down() && copying.seed % 4 != 0) {
    entry.flags |= shm::kEntrySharesDown;
    const plan::Shares shares = op.shape_for(rank, size).shares();
    for (std::uint32_t i = 0; i < size; ++i) {
      const std::uint32_t sharer = shares.down_from(rank, i);
      memory.order.emplace_back(shares.begin(sharer) * element, shares.of(sharer) * element);
    }
  }
  waiting.copier.emplace(shm::CopyProgress(at(entry.progress_offset), shape), memory,
                         ++copying.seed);
}

void Client::end_copies(Waiting& waiting) {
  if (!waiting.copier) return;
  while (waiting.copier->step()) {
  }
  copying.listed_bytes += waiting.copier->taken_bytes();
  if (waiting.result.status != Errc::ok || !copying.wrong_in_lists.empty()) return;
  copying.wrong_in_lists = waiting.copier->wrong_in_lists();
}

void Client::push_raw(std::uint32_t lane, const shm::SubmitEntry& entry) {
  TERN_CHECK(submissions_[lane].try_push(entry) == shm::RingResult::ok);
  world_.wake({daemon_, 1 + lane});
}

void Client::cancel(std::uint64_t ticket) {
  shm::SubmitEntry entry;
  std::memset(&entry, 0, sizeof(entry));
  entry.ticket = ticket;
  entry.kind = static_cast<std::uint16_t>(shm::OpKind::cancel);
  entry.group = group.group;
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) push_raw(lane, entry);
}

int Client::poll() {
  if (lost_) fail_all_tickets();
  int taken = 0;
  for (auto& [ticket, waiting] : waiting_) {
    if (waiting.copier && waiting.copier->step()) ++taken;
  }
  shm::CompletionEntry entry;
  for (std::uint32_t lane = 0; lane < completions_.size(); ++lane) {
    while (completions_[lane].try_pop(entry) == shm::RingResult::ok) {
      ++taken;
      const auto found = waiting_.find(entry.ticket);
      if (found == waiting_.end()) {
        TERN_CHECK(lost_);  // a completion that nobody waits for
        continue;
      }
      Waiting& waiting = found->second;
      if (waiting.result.status == Errc::ok) {
        waiting.result.status = static_cast<Errc>(entry.status);
        waiting.result.detail = entry.detail;
      }
      waiting.result.bytes_sent += entry.bytes_sent;
      waiting.result.source = entry.source;
      waiting.result.elements = entry.elements;
      waiting.result.encode_next_by[lane] = entry.encode_next_by;
      if (--waiting.lanes_left > 0) continue;
      end_copies(waiting);
      results_[entry.ticket] = waiting.result;
      waiting_.erase(found);
    }
  }
  return taken;
}

void Client::fail_all_tickets() {
  for (auto& [ticket, waiting] : waiting_)
    results_[ticket] = {Errc::daemon_lost, "the daemon is gone", 0};
  waiting_.clear();
}

}  // namespace tern::sim
