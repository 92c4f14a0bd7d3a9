#pragma once

// The mock's objects behind the handles of libibverbs, and the engine that moves messages.

#include <deque>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "tests/rdma/mock/fabric.h"

namespace tern::rdma::mock {

// While it exists, is_inside().
class Inside {
 public:
  Inside() noexcept;
  ~Inside();
};

struct MockDevice {
  ibv_device device{};
  DeviceShape shape;
  bool removed = false;
};

struct Context {
  ibv_context context{};  // first: the handle is cast to this type
  MockDevice* device = nullptr;
  std::deque<ibv_async_event> events;
};

struct Channel {
  ibv_comp_channel channel{};
  std::deque<ibv_cq*> events;
};

struct Completion {
  ibv_wc done{};
  std::uint32_t frees = 0;  // places of the send queue
};

struct Completions {
  ibv_cq queue{};
  std::deque<Completion> ready;
  std::deque<Completion> late;
  bool armed = false;
  bool armed_for_solicited = false;
};

struct Region {
  ibv_mr region{};
  int access = 0;
};

struct SendRequest {
  ibv_send_wr request{};
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inlined;
};

struct Pair {
  ibv_qp pair{};
  ibv_qp_cap caps{};
  ibv_qp_attr attributes{};
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> receive_places;
  std::deque<SendRequest> sends;
  std::uint32_t outstanding = 0;  // places of the send queue
  std::uint32_t unsignalled = 0;  // of them, since the last completion
  std::uint32_t tries = 0;        // of the oldest message
};

struct Fabric::Parts {
  Fabric* fabric = nullptr;
  std::list<MockDevice> devices;
  std::list<Context> contexts;
  std::list<Channel> channels;
  std::list<Completions> queues;
  std::map<std::uint32_t, Region> regions;  // by lkey
  std::map<std::uint32_t, Pair> pairs;      // by number
  std::uint32_t next_key = 0x1100;
  std::uint32_t next_pair = 0x11;

  std::uint64_t events_not_acked = 0;

  void progress();
  // Verbs wait in a destroy for ever for what was not acknowledged.
  void require_all_acked() const;
  void ring_for(Completions& queue, bool solicited, bool succeeded);
  struct Completion {
    ibv_wc done{};
    bool solicited = false;
    std::uint32_t frees = 0;  // places of the send queue
    bool late = false;        // seen only when the test says so
  };
  void tell(Completions& queue, const Completion& completion);
  void raise(Context& context, const ibv_async_event& event);
  void break_pair(Pair& pair);

 private:
  enum class Outcome { done, waits, broken };
  Outcome move(Pair& from, SendRequest& send);
  Outcome deliver(Pair& from, const SendRequest& send, Pair& to);
  Outcome fail(Pair& pair, const SendRequest& send, ibv_wc_status status);
  void complete(Pair& pair, const SendRequest& send, ibv_wc_status status);
  Pair* peer_of(const Pair& pair);
  bool gather(const Pair& pair, const SendRequest& send, std::vector<std::byte>& bytes) const;
  bool may_touch(const Pair& pair, const ibv_sge& place, int access) const;
};

ibv_gid gid_of(const Port& port);
// The fabric that exists now.
Fabric::Parts& current();

}  // namespace tern::rdma::mock
