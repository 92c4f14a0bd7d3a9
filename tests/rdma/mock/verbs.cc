// The symbols of libibverbs. Errors are those of its manual pages.

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tests/rdma/mock/parts.h"

#undef ibv_query_port
#undef ibv_reg_mr

namespace tern::rdma::mock {
namespace {

template <typename Object, typename Handle>
Object& behind(Handle* handle) {
  return *reinterpret_cast<Object*>(handle);
}

int event_descriptor() { return ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC); }

// False: nothing is there, and nobody waits.
bool take_event(int fd) {
  std::uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count;
}

template <typename Object, typename Handle>
void erase(std::list<Object>& objects, Handle* handle) {
  objects.remove_if([&](Object& object) { return reinterpret_cast<Handle*>(&object) == handle; });
}

const Port* port_of(ibv_context* context, std::uint32_t number) {
  const auto& ports = behind<Context>(context).device->shape.ports;
  return number == 0 || number > ports.size() ? nullptr : &ports[number - 1];
}

int poll_cq(ibv_cq* handle, int wanted, ibv_wc* done) {
  const Inside inside;
  Fabric::Parts& parts = current();
  ++parts.fabric->calls.poll;
  parts.progress();
  auto& queue = behind<Completions>(handle);
  int count = 0;
  for (; count < wanted && !queue.ready.empty(); ++count) {
    const Completion& first = queue.ready.front();
    if (const auto pair = parts.pairs.find(first.done.qp_num); pair != parts.pairs.end()) {
      pair->second.outstanding -= first.frees;
    }
    done[count] = first.done;
    queue.ready.pop_front();
  }
  // Only now can they be polled, and make an event.
  if (count == 0 && !queue.late.empty()) {
    queue.ready.swap(queue.late);
    parts.ring_for(queue, false, true);
  }
  return count;
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  const Inside inside;
  ++current().fabric->calls.notify;
  auto& queue = behind<Completions>(handle);
  queue.armed_for_solicited = solicited_only != 0 && (!queue.armed || queue.armed_for_solicited);
  queue.armed = true;
  return 0;
}

int post_send(ibv_qp* handle, ibv_send_wr* request, ibv_send_wr** bad) {
  const Inside inside;
  Fabric::Parts& parts = current();
  auto& pair = behind<Pair>(handle);
  ++parts.fabric->calls.post_send;
  for (; request != nullptr; request = request->next) {
    *bad = request;
    const bool is_inline = (request->send_flags & IBV_SEND_INLINE) != 0;
    SendRequest send;
    send.request = *request;
    send.sges.assign(request->sg_list, request->sg_list + request->num_sge);
    std::size_t bytes = 0;
    for (const ibv_sge& sge : send.sges) bytes += sge.length;
    if (pair.pair.state != IBV_QPS_RTS && pair.pair.state != IBV_QPS_ERR) return EINVAL;
    if (send.sges.size() > pair.caps.max_send_sge) return EINVAL;
    if (is_inline && bytes > pair.caps.max_inline_data) return EINVAL;
    if (pair.outstanding >= pair.caps.max_send_wr) return ENOMEM;
    if (is_inline) {
      for (const ibv_sge& sge : send.sges) {
        const auto* begin = reinterpret_cast<const std::byte*>(sge.addr);
        send.inlined.insert(send.inlined.end(), begin, begin + sge.length);
      }
    }
    ++pair.outstanding;
    ++parts.fabric->calls.sends;
    parts.fabric->calls.signalled += (request->send_flags & IBV_SEND_SIGNALED) != 0 ? 1 : 0;
    parts.fabric->calls.inlined += is_inline ? 1 : 0;
    pair.sends.push_back(std::move(send));
  }
  if (!parts.fabric->defers) parts.progress();
  return 0;
}

int post_recv(ibv_qp* handle, ibv_recv_wr* request, ibv_recv_wr** bad) {
  const Inside inside;
  Fabric::Parts& parts = current();
  auto& pair = behind<Pair>(handle);
  ++parts.fabric->calls.post_receive;
  for (; request != nullptr; request = request->next) {
    *bad = request;
    if (pair.pair.state == IBV_QPS_RESET || request->num_sge != 1) return EINVAL;
    if (pair.receives.size() >= pair.caps.max_recv_wr) return ENOMEM;
    pair.receives.push_back(*request);
    pair.receive_places.push_back(*request->sg_list);
  }
  // Of a pair that is broken everything comes back.
  if (pair.pair.state == IBV_QPS_ERR) parts.break_pair(pair);
  if (!parts.fabric->defers) parts.progress();
  return 0;
}

// As the kernel finds out when it pins them.
bool has_absent_pages(void* memory, std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  auto* const first = static_cast<std::byte*>(memory);
  for (std::size_t at = 0; at < bytes; at += kPageBytes) {
    std::byte copy{};
    const iovec to{&copy, 1}, from{first + at, 1};
    if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != 1) return true;
  }
  return false;
}

ibv_mr* register_memory(ibv_pd* domain, void* memory, std::size_t bytes, unsigned access) {
  const Inside inside;
  ++current().fabric->attempts;
  if (has_absent_pages(memory, bytes)) {
    errno = EFAULT;
    return nullptr;
  }
  Fabric& fabric = *current().fabric;
  if (bytes > fabric.max_registered_bytes - fabric.registered_bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  fabric.registered_bytes += bytes;
  ++fabric.registrations;
  const std::uint32_t key = current().next_key += 0x100;
  Region& region = current().regions[key];
  region.region = {domain->context, domain, memory, bytes, 0, key, key};
  region.access = static_cast<int>(access);
  return &region.region;
}

}  // namespace
}  // namespace tern::rdma::mock

using tern::rdma::mock::behind;
using tern::rdma::mock::Channel;
using tern::rdma::mock::Completions;
using tern::rdma::mock::Context;
using tern::rdma::mock::current;
using tern::rdma::mock::Inside;
using tern::rdma::mock::MockDevice;
using tern::rdma::mock::Pair;
using tern::rdma::mock::Port;

extern "C" {

// ---- Devices

ibv_device** ibv_get_device_list(int* count) {
  const Inside inside;
  std::vector<ibv_device*> found;
  for (MockDevice& one : current().devices) {
    if (!one.removed) found.push_back(&one.device);
  }
  auto** list = new ibv_device* [found.size() + 1] {};
  std::copy(found.begin(), found.end(), list);
  if (count != nullptr) *count = static_cast<int>(found.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) { delete[] list; }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
  const Inside inside;
  Context& opened = current().contexts.emplace_back();
  opened.device = &behind<MockDevice>(device);
  opened.context.device = device;
  opened.context.async_fd = tern::rdma::mock::event_descriptor();
  opened.context.cmd_fd = -1;
  opened.context.ops.poll_cq = tern::rdma::mock::poll_cq;
  opened.context.ops.req_notify_cq = tern::rdma::mock::req_notify_cq;
  opened.context.ops.post_send = tern::rdma::mock::post_send;
  opened.context.ops.post_recv = tern::rdma::mock::post_recv;
  return &opened.context;
}

int ibv_close_device(ibv_context* context) {
  const Inside inside;
  ::close(context->async_fd);
  tern::rdma::mock::erase(current().contexts, context);
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const auto& shape = behind<Context>(context).device->shape;
  *attributes = {};
  attributes->phys_port_cnt = static_cast<std::uint8_t>(shape.ports.size());
  attributes->max_qp_wr = shape.max_queue_depth;
  attributes->max_cqe = 4 * shape.max_queue_depth;
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t number, _compat_ibv_port_attr* result) {
  const Port* port = tern::rdma::mock::port_of(context, number);
  if (port == nullptr) return EINVAL;
  auto* attributes = reinterpret_cast<ibv_port_attr*>(result);
  *attributes = {};
  attributes->state = port->state;
  attributes->active_mtu = attributes->max_mtu = port->mtu;
  attributes->gid_tbl_len = 1;
  attributes->link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t room,
                             std::uint32_t, std::size_t) {
  std::size_t count = 0;
  std::uint32_t number = 0;
  for (const Port& port : behind<Context>(context).device->shape.ports) {
    ++number;
    for (std::uint32_t row = 0; row < port.gid_types.size() && count < room; ++row) {
      ibv_gid_entry& entry = entries[count++];
      entry = {};
      entry.port_num = number;
      entry.gid_index = row;
      entry.gid_type = port.gid_types[row];
      entry.gid = tern::rdma::mock::gid_of(port);
    }
  }
  return static_cast<ssize_t>(count);
}

int ibv_get_async_event(ibv_context* handle, ibv_async_event* event) {
  const Inside inside;
  auto& context = behind<Context>(handle);
  if (!tern::rdma::mock::take_event(handle->async_fd)) return -1;
  *event = context.events.front();
  context.events.pop_front();
  ++current().events_not_acked;
  return 0;
}

void ibv_ack_async_event(ibv_async_event*) { --current().events_not_acked; }

const char* ibv_port_state_str(ibv_port_state state) {
  return state == IBV_PORT_ACTIVE ? "PORT_ACTIVE" : "PORT_DOWN";
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_WR_FLUSH_ERR:
      return "Work Request Flushed Error";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    default:
      return "an error";
  }
}

// ---- What belongs to a context

ibv_pd* ibv_alloc_pd(ibv_context* context) { return new ibv_pd{context, 0}; }

int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, std::size_t bytes, int access) {
  return tern::rdma::mock::register_memory(domain, memory, bytes, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* memory, std::size_t bytes, std::uint64_t,
                         unsigned access) {
  return tern::rdma::mock::register_memory(domain, memory, bytes, access);
}

int ibv_dereg_mr(ibv_mr* region) {
  const Inside inside;
  current().fabric->registered_bytes -= region->length;
  current().regions.erase(region->lkey);
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const Inside inside;
  Channel& made = current().channels.emplace_back();
  made.channel = {context, tern::rdma::mock::event_descriptor(), 0};
  return &made.channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const Inside inside;
  ::close(channel->fd);
  tern::rdma::mock::erase(current().channels, channel);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* handle, ibv_cq** queue, void** context) {
  const Inside inside;
  auto& channel = behind<Channel>(handle);
  do {
    if (!tern::rdma::mock::take_event(handle->fd)) return -1;
    // Those of queues that are destroyed are gone.
  } while (channel.events.empty());
  *queue = channel.events.front();
  *context = (*queue)->cq_context;
  channel.events.pop_front();
  ++current().events_not_acked;
  return 0;
}

void ibv_ack_cq_events(ibv_cq*, unsigned count) { current().events_not_acked -= count; }

ibv_cq* ibv_create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel,
                      int) {
  const Inside inside;
  Completions& made = current().queues.emplace_back();
  made.queue.context = context;
  made.queue.channel = channel;
  made.queue.cq_context = cq_context;
  made.queue.cqe = depth;
  return &made.queue;
}

int ibv_destroy_cq(ibv_cq* queue) {
  const Inside inside;
  for (const auto& [number, pair] : current().pairs) {
    if (pair.pair.send_cq == queue || pair.pair.recv_cq == queue) return EBUSY;
  }
  current().require_all_acked();
  for (Channel& channel : current().channels) std::erase(channel.events, queue);
  tern::rdma::mock::erase(current().queues, queue);
  return 0;
}

// ---- Queue pairs

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  const Inside inside;
  const auto& shape = behind<Context>(domain->context).device->shape;
  const auto deepest = static_cast<std::uint32_t>(shape.max_queue_depth);
  if (attributes->cap.max_send_wr > deepest || attributes->cap.max_recv_wr > deepest) {
    errno = ENOMEM;
    return nullptr;
  }
  // What is given is at least what was asked for, or nothing is.
  if (attributes->cap.max_inline_data > shape.max_inline) {
    errno = EINVAL;
    return nullptr;
  }
  ++current().fabric->calls.queue_pairs;
  const std::uint32_t number = current().next_pair++;
  Pair& made = current().pairs[number];
  attributes->cap.max_inline_data = shape.max_inline;
  made.caps = attributes->cap;
  made.pair.context = domain->context;
  made.pair.pd = domain;
  made.pair.send_cq = attributes->send_cq;
  made.pair.recv_cq = attributes->recv_cq;
  made.pair.qp_type = attributes->qp_type;
  made.pair.qp_num = number;
  made.pair.state = IBV_QPS_RESET;
  return &made.pair;
}

int ibv_modify_qp(ibv_qp* handle, ibv_qp_attr* wanted, int mask) {
  const Inside inside;
  // What the transitions of a reliable connection need, no more and no less.
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kSend = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                        IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  auto& pair = behind<Pair>(handle);
  ibv_qp_attr& own = pair.attributes;
  switch (wanted->qp_state) {
    case IBV_QPS_INIT:
      if (pair.pair.state != IBV_QPS_RESET || mask != kInit) return EINVAL;
      own.port_num = wanted->port_num;
      own.qp_access_flags = wanted->qp_access_flags;
      break;
    case IBV_QPS_RTR: {
      const Port* port = tern::rdma::mock::port_of(handle->context, own.port_num);
      if (pair.pair.state != IBV_QPS_INIT || mask != kReceive || port == nullptr ||
          wanted->path_mtu > port->mtu) {
        return EINVAL;
      }
      own.path_mtu = wanted->path_mtu;
      own.dest_qp_num = wanted->dest_qp_num;
      own.rq_psn = wanted->rq_psn;
      own.min_rnr_timer = wanted->min_rnr_timer;
      own.ah_attr = wanted->ah_attr;
      current().fabric->last_path = *wanted;
      break;
    }
    case IBV_QPS_RTS:
      if (pair.pair.state != IBV_QPS_RTR || mask != kSend) return EINVAL;
      own.sq_psn = wanted->sq_psn;
      own.timeout = wanted->timeout;
      own.retry_cnt = wanted->retry_cnt;
      own.rnr_retry = wanted->rnr_retry;
      current().fabric->last_send_settings = *wanted;
      break;
    default:
      return EINVAL;
  }
  pair.pair.state = wanted->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* handle) {
  const Inside inside;
  current().require_all_acked();
  for (Completions& queue : current().queues) {
    const auto is_of_it = [&](const tern::rdma::mock::Completion& one) {
      return one.done.qp_num == handle->qp_num;
    };
    std::erase_if(queue.ready, is_of_it);
    std::erase_if(queue.late, is_of_it);
  }
  current().pairs.erase(handle->qp_num);
  return 0;
}

}  // extern "C"
