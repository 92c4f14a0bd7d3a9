#include "client_lib/requests.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace tern::client_lib {
namespace {

// How long a wait goes at most before it looks at the connection's state again.
constexpr int kSliceMs = 100;

shm::PacketHeader header_of(std::span<const std::byte> bytes) noexcept {
  shm::PacketHeader header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  return header;
}

// Whether the answer makes something for the client, which keeps it until it gives it back.
bool makes_something(shm::PacketKind answer_kind) noexcept {
  return answer_kind == shm::PacketKind::group_joined ||
         answer_kind == shm::PacketKind::group_split_reply ||
         answer_kind == shm::PacketKind::tensor_declared ||
         answer_kind == shm::PacketKind::region_created;
}

// Of a declaration, whose answer does not name it. 0: another question.
std::uint64_t group_of(std::span<const std::byte> question) noexcept {
  shm::TensorDeclarePacket declare{};
  const bool is_one =
      header_of(question).kind == static_cast<std::uint16_t>(shm::PacketKind::tensor_declare) &&
      shm::read_packet(question, declare);
  return is_one ? declare.group : 0;
}

Errc failure_code(std::int32_t status) noexcept {
  return status > 0 && status < kErrcCount ? static_cast<Errc>(status) : Errc::internal;
}

}  // namespace

Result<shm::Packet> Requests::call(std::span<std::byte> question, shm::PacketKind answer_kind,
                                   Deadline deadline) {
  Waiting waiting;
  std::unique_lock lock(mutex_);
  // What was made for nobody is given back before this question is weighed against limits.
  if (!late_answers_.empty()) take_what_has_come();
  if (broken_ != Errc::ok) return broken_error();
  const std::uint64_t request = next_request_++;
  std::memcpy(question.data() + offsetof(shm::PacketHeader, request), &request, sizeof request);
  Result<shm::Packet> answer = tl::unexpected(Error{});
  bool is_sent = false;
  {
    const Registration registered(waiting_, request, waiting);
    const Status sent = send(lock, question, deadline);
    is_sent = sent.has_value();
    const bool closed = !sent && sent.error().code != Errc::timeout;
    if (closed) take_what_has_come();
    if (closed && !waiting.answer) {
      break_with(Errc::daemon_lost, "ternd closed the connection");
    }
    answer = sent || waiting.answer ? wait_answer(lock, waiting, deadline)
                                    : Result<shm::Packet>(tl::unexpected(sent.error()));
  }
  if (answer) {
    lock.unlock();
    return judge(std::move(*answer), answer_kind);
  }
  if (is_sent && answer.error().code == Errc::timeout && makes_something(answer_kind)) {
    // So that memory to owe what it makes is there when the answer comes, which comes but once.
    owed_.reserve(owed_.size() + late_answers_.size() + 1);
    late_answers_.emplace(request, group_of(question));
  }
  if (broken_ != Errc::ok) return broken_error();
  return answer;
}

Result<shm::Packet> Requests::wait_answer(std::unique_lock<std::mutex>& lock, Waiting& waiting,
                                          Deadline deadline) {
  while (!waiting.answer) {
    if (broken_ != Errc::ok) return broken_error();
    if (deadline.passed()) return fail(Errc::timeout, "ternd did not answer in time");
    if (receiving_) {
      changed_.wait_for(lock, std::chrono::milliseconds(deadline.poll_ms(kSliceMs)));
      continue;
    }
    receiving_ = true;
    lock.unlock();
    Result<shm::Packet> packet = receive(deadline.poll_ms(kSliceMs));
    lock.lock();
    receiving_ = false;
    take(std::move(packet));
    (void)give_back();
    changed_.notify_all();
  }
  return std::move(*waiting.answer);
}

// Late answers, and why the daemon has closed the connection, if it said so. REQUIRES: mutex_ held.
void Requests::take_what_has_come() {
  while (!receiving_ && broken_ == Errc::ok) {
    Result<shm::Packet> packet = receive(0);
    if (!packet) return;
    take(std::move(packet));
    changed_.notify_all();
  }
}

// REQUIRES: mutex_ held.
void Requests::take(Result<shm::Packet> packet) {
  if (!packet) {
    if (packet.error().code == Errc::would_block) return;
    if (packet.error().code == Errc::peer_lost) {
      break_with(Errc::daemon_lost, "ternd closed the connection");
    } else {
      break_with(Errc::protocol_error, "ternd sent a packet that cannot be read");
    }
    return;
  }
  const shm::PacketHeader header = header_of(packet->bytes);
  if (packet->bytes.size() < sizeof header || header.magic != shm::kPacketMagic) {
    break_with(Errc::protocol_error, "ternd sent something that is not a packet");
    return;
  }
  if (header.version != wire::kShmAbi) {
    break_with(Errc::version_mismatch, "ternd and libtern are of different versions");
    return;
  }
  if (const auto found = waiting_.find(header.request); found != waiting_.end()) {
    found->second->answer = std::move(*packet);
  } else if (const auto late = late_answers_.extract(header.request)) {
    owe_region(*packet);
    owe_group(*packet);
    owe_tensor(*packet, late.mapped());
    (void)give_back();
  }
}

// Does nothing if the answer is another one.
void Requests::owe_region(const shm::Packet& packet) {
  shm::RegionCreatedPacket created{};
  if (header_of(packet.bytes).kind != static_cast<std::uint16_t>(shm::PacketKind::region_created) ||
      !shm::read_packet(packet.bytes, created)) {
    return;
  }
  auto free = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_free, next_request_++);
  free.region = created.region;
  owed_.emplace_back(free);
}

// The same for a join or a split.
void Requests::owe_group(const shm::Packet& packet) {
  // The answer to a split is as long, and begins alike.
  static_assert(sizeof(shm::GroupSplitReplyPacket) == sizeof(shm::GroupJoinedPacket) &&
                offsetof(shm::GroupSplitReplyPacket, group) ==
                    offsetof(shm::GroupJoinedPacket, group));
  shm::GroupJoinedPacket joined{};
  if (!shm::read_packet(packet.bytes, joined)) return;
  const auto kind = static_cast<shm::PacketKind>(joined.header.kind);
  const bool is_joined = kind == shm::PacketKind::group_joined ||
                         (kind == shm::PacketKind::group_split_reply && joined.group != 0);
  if (!is_joined) return;
  auto leave =
      shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, next_request_++);
  leave.group = joined.group;
  owed_.emplace_back(leave);
}

// The same for a declaration, in that group.
void Requests::owe_tensor(const shm::Packet& packet, std::uint64_t group) {
  shm::TensorDeclaredPacket declared{};
  const bool is_declared = header_of(packet.bytes).kind ==
                               static_cast<std::uint16_t>(shm::PacketKind::tensor_declared) &&
                           shm::read_packet(packet.bytes, declared);
  if (!is_declared) return;
  auto release =
      shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, next_request_++);
  release.group = group;
  release.tensor = declared.tensor;
  owed_.emplace_back(release);
}

// As far as the socket has room. Whether nothing is left to give back. REQUIRES: mutex_ held.
bool Requests::give_back() noexcept {
  const auto has_gone = [this](const auto& owed) {
    const Status sent = std::visit(
        [this](const auto& packet) { return socket_.send(shm::packet_bytes(packet)); }, owed);
    // With the connection all that it has made ends.
    return sent || sent.error().code != Errc::would_block;
  };
  const auto left = std::find_if_not(owed_.begin(), owed_.end(), has_gone);
  owed_.erase(owed_.begin(), left);
  return owed_.empty();
}

Result<shm::Packet> Requests::judge(shm::Packet packet, shm::PacketKind answer_kind) {
  const auto kind = static_cast<shm::PacketKind>(header_of(packet.bytes).kind);
  if (kind == shm::PacketKind::done) {
    shm::DonePacket done{};
    if (!shm::read_packet(packet.bytes, done)) return lose_answer();
    if (done.status != 0) {
      const std::size_t length = ::strnlen(done.detail, sizeof done.detail);
      return fail(failure_code(done.status), std::string(done.detail, length));
    }
  }
  if (kind != answer_kind) return lose_answer();
  return packet;
}

tl::unexpected<Error> Requests::lose_answer() {
  close(Errc::protocol_error, "ternd gave an answer that does not fit the question");
  return fail(Errc::protocol_error, "ternd gave an answer that does not fit the question");
}

// REQUIRES: mutex_ held; it is not while this waits for room.
Status Requests::send(std::unique_lock<std::mutex>& lock, std::span<const std::byte> question,
                      Deadline deadline) noexcept {
  for (;;) {
    // A question that is weighed against limits comes after what makes room for it.
    Status sent = give_back() ? socket_.send(question) : Status(fail(Errc::would_block, {}));
    if (sent || sent.error().code != Errc::would_block) return sent;
    if (deadline.passed()) return fail(Errc::timeout, "ternd does not read");
    pollfd writable{socket_.fd(), POLLOUT, 0};
    lock.unlock();
    (void)::poll(&writable, 1, deadline.poll_ms(kSliceMs));
    lock.lock();
  }
}

Result<shm::Packet> Requests::receive(int poll_ms) noexcept {
  try {
    pollfd readable{socket_.fd(), POLLIN, 0};
    if (::poll(&readable, 1, poll_ms) <= 0) return fail(Errc::would_block, {});
    return socket_.receive();
  } catch (const std::bad_alloc&) {
    return fail(Errc::out_of_memory, {});
  }
}

void Requests::post_bytes(std::span<std::byte> question) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (broken_ != Errc::ok) return;
    const std::uint64_t request = next_request_++;
    std::memcpy(question.data() + offsetof(shm::PacketHeader, request), &request, sizeof request);
    const Status sent = give_back() ? socket_.send(question) : Status(fail(Errc::would_block, {}));
    shm::TensorReleasePacket release{};
    const bool is_release =
        header_of(question).kind == static_cast<std::uint16_t>(shm::PacketKind::tensor_release) &&
        shm::read_packet(question, release);
    // Until there is room: the tensor's name would stay taken.
    if (!sent && sent.error().code == Errc::would_block && is_release) {
      owed_.reserve(owed_.size() + late_answers_.size() + 1);  // as in call()
      owed_.emplace_back(release);
    }
    // Nobody may ever ask again, and answers nobody takes would fill the daemon's side.
    while (!receiving_) {
      Result<shm::Packet> packet = receive(0);
      if (!packet && packet.error().code == Errc::would_block) break;
      take(std::move(packet));
      if (broken_ != Errc::ok) break;
    }
    changed_.notify_all();
  } catch (const std::bad_alloc&) {
  }
}

bool Requests::lost() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (broken_ != Errc::ok) return true;
  }
  pollfd hang_up{socket_.fd(), 0, 0};
  return ::poll(&hang_up, 1, 0) == 1 && (hang_up.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void Requests::close(Errc code, const char* text) noexcept {
  const std::lock_guard lock(mutex_);
  break_with(code, text);
}

// REQUIRES: mutex_ held. The descriptor stays open: another thread may be in poll on it.
void Requests::break_with(Errc code, const char* text) noexcept {
  if (broken_ != Errc::ok) return;
  broken_ = code;
  broken_text_ = text;
  ::shutdown(socket_.fd(), SHUT_RDWR);
  changed_.notify_all();
}

tl::unexpected<Error> Requests::broken_error() const { return fail(broken_, broken_text_); }

}  // namespace tern::client_lib
