#pragma once

// Questions and answers over the hand-shake socket. Several threads may ask at once: the answers
// are matched by request number. One asking thread at a time receives for all (the receiver); when
// its own answer is there, or its time is up, the role passes to another, so that a join that waits
// for minutes holds nobody up.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/result.h"
#include "client_lib/deadline.h"
#include "shm/packet_socket.h"

namespace tern::client_lib {

class Requests {
 public:
  explicit Requests(shm::PacketSocket socket) noexcept : socket_(std::move(socket)) {}

  // Sends the packet under a new request number and waits for its answer, whose kind and size are
  // checked. A done packet with a failure becomes that failure. timeout; daemon_lost when the
  // connection ends; protocol_error (and the connection is closed) when the daemon answers
  // nonsense.
  template <typename Answer, typename Question>
  Result<Answer> ask(Question question, shm::PacketKind answer_kind, Deadline deadline,
                     std::vector<Fd>* fds = nullptr) {
    Result<shm::Packet> packet =
        call({reinterpret_cast<std::byte*>(&question), sizeof question}, answer_kind, deadline);
    if (!packet) return tl::unexpected(std::move(packet.error()));
    Answer answer;
    if (!shm::read_packet(packet->bytes, answer)) return lose_answer();
    if (fds != nullptr) *fds = std::move(packet->fds);
    return answer;
  }

  // Sends without waiting and drops the answer. Does nothing if the daemon does not read.
  template <typename Question>
  void post(Question question) noexcept {
    post_bytes({reinterpret_cast<std::byte*>(&question), sizeof question});
  }

  // Whether the connection has ended, by either side.
  bool lost() noexcept;

  // Ends the connection: all that wait get error.
  void close(Errc code, const char* text) noexcept;

  // In a forked child: closes the child's copy of the descriptor and nothing else.
  void close_fd() noexcept { socket_.close(); }

 private:
  struct Waiting {
    std::optional<shm::Packet> answer;
  };
  // Both its ends happen with mutex_ held.
  struct Registration {
    Registration(std::map<std::uint64_t, Waiting*>& where, std::uint64_t number, Waiting& waiting)
        : map(where), request(number) {
      map.emplace(request, &waiting);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    ~Registration() { map.erase(request); }
    std::map<std::uint64_t, Waiting*>& map;
    std::uint64_t request;
  };

  Result<shm::Packet> call(std::span<std::byte> question, shm::PacketKind answer_kind,
                           Deadline deadline);
  Result<shm::Packet> wait_answer(std::unique_lock<std::mutex>& lock, Waiting& waiting,
                                  Deadline deadline);
  Result<shm::Packet> judge(shm::Packet packet, shm::PacketKind answer_kind);
  Status send(std::unique_lock<std::mutex>& lock, std::span<const std::byte> question,
              Deadline deadline) noexcept;
  Result<shm::Packet> receive(int poll_ms) noexcept;
  void take_what_has_come();
  void take(Result<shm::Packet> packet);
  void post_bytes(std::span<std::byte> question) noexcept;
  void owe_region(const shm::Packet& packet);
  void owe_group(const shm::Packet& packet);
  void owe_tensor(const shm::Packet& packet, std::uint64_t group);
  bool give_back() noexcept;
  tl::unexpected<Error> lose_answer();
  void break_with(Errc code, const char* text) noexcept;
  tl::unexpected<Error> broken_error() const;

  shm::PacketSocket socket_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_request_ = 1;
  std::map<std::uint64_t, Waiting*> waiting_;
  // Of what makes something, and whose asker has gone: if a group comes about after all, it is left
  // at once, and a tensor or a region is given back. By request; of a declaration the group.
  std::map<std::uint64_t, std::uint64_t> late_answers_;
  // What says so, until the socket has room for it. There is room for that of all late answers.
  std::vector<std::variant<shm::RegionPacket, shm::GroupLeavePacket, shm::TensorReleasePacket>>
      owed_;
  bool receiving_ = false;
  Errc broken_ = Errc::ok;
  const char* broken_text_ = "";
};

}  // namespace tern::client_lib
