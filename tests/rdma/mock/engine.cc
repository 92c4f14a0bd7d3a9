// How messages move.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/rdma/mock/parts.h"

namespace tern::rdma::mock {
namespace {

std::size_t length_of(std::span<const ibv_sge> sges) {
  std::size_t bytes = 0;
  for (const ibv_sge& sge : sges) bytes += sge.length;
  return bytes;
}

const Port& port_of(const Pair& pair) {
  const MockDevice& device = *reinterpret_cast<const Context*>(pair.pair.context)->device;
  return device.shape.ports[static_cast<std::size_t>(pair.attributes.port_num - 1)];
}

bool is_up(const Pair& pair) {
  const MockDevice& device = *reinterpret_cast<const Context*>(pair.pair.context)->device;
  return !device.removed && port_of(pair).state == IBV_PORT_ACTIVE;
}

void ring(int fd) {
  const std::uint64_t one = 1;
  if (::write(fd, &one, sizeof one) != sizeof one) std::abort();
}

}  // namespace

void Fabric::Parts::tell(Completions& queue, const Completion& completion) {
  (completion.late ? queue.late : queue.ready).push_back({completion.done, completion.frees});
  if (queue.ready.size() + queue.late.size() > static_cast<std::size_t>(queue.queue.cqe)) {
    // An overrun, which breaks the queue: nothing of it may be relied on any more.
    queue.ready.clear();
    queue.late.clear();
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = &queue.queue;
    raise(*reinterpret_cast<Context*>(queue.queue.context), event);
    return;
  }
  if (completion.late) return;
  ring_for(queue, completion.solicited, completion.done.status == IBV_WC_SUCCESS);
}

void Fabric::Parts::ring_for(Completions& queue, bool solicited, bool succeeded) {
  const bool counts = !queue.armed_for_solicited || solicited || !succeeded;
  if (!queue.armed || !counts || queue.queue.channel == nullptr) return;
  queue.armed = false;
  auto& channel = *reinterpret_cast<Channel*>(queue.queue.channel);
  channel.events.push_back(&queue.queue);
  ring(channel.channel.fd);
}

void Fabric::Parts::raise(Context& context, const ibv_async_event& event) {
  context.events.push_back(event);
  ring(context.context.async_fd);
}

void Fabric::Parts::complete(Pair& pair, const SendRequest& send, ibv_wc_status status) {
  const bool signalled =
      (send.request.send_flags & IBV_SEND_SIGNALED) != 0 || status != IBV_WC_SUCCESS;
  ++pair.unsignalled;
  if (!signalled) return;
  ibv_wc done{};
  done.wr_id = send.request.wr_id;
  done.status = status;
  done.opcode = send.request.opcode == IBV_WR_RDMA_WRITE ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
  done.qp_num = pair.pair.qp_num;
  tell(*reinterpret_cast<Completions*>(pair.pair.send_cq),
       {.done = done,
        .frees = std::exchange(pair.unsignalled, 0),
        .late = fabric->completes_late && status == IBV_WC_SUCCESS});
}

// Everything that is posted comes back as flushed.
void Fabric::Parts::break_pair(Pair& pair) {
  pair.pair.state = IBV_QPS_ERR;
  for (const SendRequest& send : std::exchange(pair.sends, {})) {
    complete(pair, send, IBV_WC_WR_FLUSH_ERR);
  }
  pair.receive_places.clear();
  for (const ibv_recv_wr& receive : std::exchange(pair.receives, {})) {
    ibv_wc done{};
    done.wr_id = receive.wr_id;
    done.status = IBV_WC_WR_FLUSH_ERR;
    done.opcode = IBV_WC_RECV;
    done.qp_num = pair.pair.qp_num;
    tell(*reinterpret_cast<Completions*>(pair.pair.recv_cq), {.done = done});
  }
}

Fabric::Parts::Outcome Fabric::Parts::fail(Pair& pair, const SendRequest& send,
                                           ibv_wc_status status) {
  complete(pair, send, status);
  pair.sends.pop_front();
  break_pair(pair);
  return Outcome::broken;
}

Pair* Fabric::Parts::peer_of(const Pair& pair) {
  const auto found = pairs.find(pair.attributes.dest_qp_num);
  if (found == pairs.end()) return nullptr;
  Pair& peer = found->second;
  const bool joined = peer.attributes.dest_qp_num == pair.pair.qp_num &&
                      peer.attributes.rq_psn == pair.attributes.sq_psn;
  const bool receives = peer.pair.state == IBV_QPS_RTR || peer.pair.state == IBV_QPS_RTS;
  const ibv_gid gid = gid_of(port_of(peer));
  const bool is_there = std::memcmp(gid.raw, pair.attributes.ah_attr.grh.dgid.raw, sizeof gid) == 0;
  return joined && receives && is_there && is_up(peer) ? &peer : nullptr;
}

bool Fabric::Parts::may_touch(const Pair& pair, const ibv_sge& place, int access) const {
  const auto found = regions.find(place.lkey);
  if (found == regions.end() || found->second.region.pd != pair.pair.pd) return false;
  const ibv_mr& region = found->second.region;
  const auto begin = reinterpret_cast<std::uintptr_t>(region.addr);
  return (found->second.access & access) == access && place.addr >= begin &&
         place.addr + place.length <= begin + region.length;
}

bool Fabric::Parts::gather(const Pair& pair, const SendRequest& send,
                           std::vector<std::byte>& bytes) const {
  if ((send.request.send_flags & IBV_SEND_INLINE) != 0) {
    bytes = send.inlined;
    return true;
  }
  for (const ibv_sge& sge : send.sges) {
    if (!may_touch(pair, sge, 0)) return false;
    const auto* begin = reinterpret_cast<const std::byte*>(sge.addr);
    bytes.insert(bytes.end(), begin, begin + sge.length);
  }
  return true;
}

// One message, the oldest of `from`.
Fabric::Parts::Outcome Fabric::Parts::move(Pair& from, SendRequest& send) {
  if (from.pair.state != IBV_QPS_RTS) return fail(from, send, IBV_WC_WR_FLUSH_ERR);
  const std::size_t bytes = length_of(send.sges);
  const std::size_t packet = std::min<std::size_t>(bytes, 128u << from.attributes.path_mtu);
  Pair* to = is_up(from) ? peer_of(from) : nullptr;
  if (to == nullptr || packet > fabric->carries_bytes || fabric->loses_all) {
    return ++from.tries < fabric->tries ? Outcome::waits : fail(from, send, IBV_WC_RETRY_EXC_ERR);
  }
  from.tries = 0;
  return deliver(from, send, *to);
}

Fabric::Parts::Outcome Fabric::Parts::deliver(Pair& from, const SendRequest& send, Pair& to) {
  std::vector<std::byte> bytes;
  if (!gather(from, send, bytes)) return fail(from, send, IBV_WC_LOC_PROT_ERR);
  const ibv_wr_opcode opcode = send.request.opcode;
  if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ) {
    const int access =
        opcode == IBV_WR_RDMA_WRITE ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
    const ibv_sge place{send.request.wr.rdma.remote_addr, static_cast<std::uint32_t>(bytes.size()),
                        send.request.wr.rdma.rkey};
    const bool granted = (to.attributes.qp_access_flags & static_cast<unsigned>(access)) != 0;
    if (!granted || !may_touch(to, place, access)) {
      break_pair(to);
      return fail(from, send, IBV_WC_REM_ACCESS_ERR);
    }
    if (opcode == IBV_WR_RDMA_WRITE) {
      std::memcpy(reinterpret_cast<void*>(place.addr), bytes.data(), bytes.size());
    }
    complete(from, send, IBV_WC_SUCCESS);
    from.sends.pop_front();
    return Outcome::done;
  }
  if (to.receives.empty()) {
    return from.attributes.rnr_retry == 7 ? Outcome::waits
                                          : fail(from, send, IBV_WC_RNR_RETRY_EXC_ERR);
  }
  ibv_wc done{};
  done.wr_id = to.receives.front().wr_id;
  done.opcode = IBV_WC_RECV;
  done.qp_num = to.pair.qp_num;
  done.byte_len = static_cast<std::uint32_t>(bytes.size());
  const ibv_sge place = to.receive_places.front();
  to.receives.pop_front();
  to.receive_places.pop_front();
  auto& queue = *reinterpret_cast<Completions*>(to.pair.recv_cq);
  if (bytes.size() > place.length || !may_touch(to, place, IBV_ACCESS_LOCAL_WRITE)) {
    done.status = bytes.size() > place.length ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR;
    tell(queue, {.done = done});
    break_pair(to);
    return fail(from, send, IBV_WC_REM_INV_REQ_ERR);
  }
  if (!bytes.empty()) {
    std::memcpy(reinterpret_cast<void*>(place.addr), bytes.data(), bytes.size());
  }
  if (opcode == IBV_WR_SEND_WITH_IMM) {
    done.wc_flags = IBV_WC_WITH_IMM;
    done.imm_data = send.request.imm_data;
  }
  tell(queue, {.done = done, .solicited = (send.request.send_flags & IBV_SEND_SOLICITED) != 0});
  complete(from, send, IBV_WC_SUCCESS);
  from.sends.pop_front();
  return Outcome::done;
}

void Fabric::Parts::progress() {
  for (auto& [number, pair] : pairs) {
    while (!pair.sends.empty() && move(pair, pair.sends.front()) == Outcome::done) {
    }
  }
}

}  // namespace tern::rdma::mock
