// The C functions of operations and tickets.

#include "client_lib/handles.h"
#include "client_lib/op_reading.h"
#include "client_lib/sized_struct.h"
#include "plan/all_gather.h"
#include "plan/all_reduce.h"
#include "plan/all_to_all.h"
#include "plan/barrier.h"
#include "plan/broadcast.h"
#include "plan/gather.h"
#include "plan/recv.h"
#include "plan/reduce.h"
#include "plan/reduce_scatter.h"
#include "plan/scatter.h"
#include "plan/send.h"

using namespace tern::client_lib;
using tern::Result;
using tern::Status;

namespace {

struct Bytes {
  const void* begin;
  std::uint64_t count;
};

bool overlap(const Bytes& a, const Bytes& b) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a.begin);
  const auto second = reinterpret_cast<std::uintptr_t>(b.begin);
  return a.count != 0 && b.count != 0 && first < second + b.count && second < first + a.count;
}

// What is reserved must be as a program of this version leaves it: a later meaning is refused, not
// ignored.
tern_status check_reserved(const tern_op& op) noexcept {
  if (op.reserved != 0) return refuse("op.reserved must be 0");
  if (op.wait_event != 0 || op.signal_event != 0) {
    set_error_detail("device events are reserved for a later version");
    return TERN_ERR_UNSUPPORTED;
  }
  return TERN_OK;
}

// dtype and count: the tensor's, or the op's own. Counts that say it all are added up.
tern_status read_shape(const tern_group& group, const tern_op& op, OpRequest& request) {
  if (op.tensor == nullptr) {
    if (raw(op.dtype) > raw(TERN_U64)) return refuse("dtype is not one of tern_dtype");
    request.dtype = static_cast<tern::DType>(raw(op.dtype));
    request.count = op.count;
    const bool add_up = op.count == 0 && op.counts != nullptr && request.plan->has_shares();
    for (std::int32_t rank = 0; add_up && rank < group.state->size; ++rank) {
      if (op.counts[rank] > tern::plan::kMaxElements - request.count) {
        return refuse("the counts add up to more than 2^40 elements");
      }
      request.count += op.counts[rank];
    }
  } else {
    if (op.tensor->owner != &group) return refuse("the tensor is of another group");
    request.tensor = op.tensor->state;
    request.dtype = request.tensor->dtype;
    request.count = request.tensor->count;
    if (op.count != 0 && op.count != request.count) {
      return refuse("count is neither 0 nor the tensor's declared count");
    }
  }
  return TERN_OK;
}

// Of pairs one list: what the rank sends, then what it receives.
tern_status read_counts(const tern_op& op, OpRequest& request) {
  request.counts = op.counts;
  if (!request.plan->has_pairs()) {
    return op.receive_counts == nullptr ? TERN_OK : refuse("the operation takes no receive_counts");
  }
  if ((op.counts == nullptr) != (op.receive_counts == nullptr)) {
    return refuse("counts and receive_counts must both be given, or neither");
  }
  if (op.counts == nullptr) return TERN_OK;
  const auto ranks = static_cast<std::size_t>(request.group->size);
  request.pair_counts.assign(op.counts, op.counts + ranks);
  request.pair_counts.insert(request.pair_counts.end(), op.receive_counts,
                             op.receive_counts + ranks);
  request.counts = request.pair_counts.data();
  return TERN_OK;
}

// Where what has been received is told.
tern_status read_received(const tern_op& op, OpRequest& request) {
  if (op.received == nullptr) return TERN_OK;
  if (!request.plan->passes() || request.plan->sends()) {
    return refuse("received is for an operation that receives from one rank");
  }
  request.received = op.received;
  return check_size(op.received, "received");
}

// What the operation takes of these, and whether it can be done so: the daemon asks the same.
tern_status read_work(const tern_op& op, OpRequest& request) {
  if (const tern_status status = read_counts(op, request); status != TERN_OK) return status;
  if (request.plan->reduces()) {
    if (raw(op.reduction) > raw(TERN_XOR)) return refuse("reduction is not one of tern_reduction");
    request.reduction = static_cast<tern::Reduction>(raw(op.reduction));
  }
  if (request.plan->has_root) request.root = static_cast<std::uint32_t>(op.root);
  if (request.plan->passes()) {
    // TERN_ANY_SOURCE is shm::kAnySource.
    request.root = static_cast<std::uint32_t>(op.peer);
    request.tag = op.tag;
  }
  request.prescale = op.prescale == 0.0f ? 1.0f : op.prescale;
  request.state_scale = op.state_scale == 0.0f ? 1.0f : op.state_scale;
  const char* problem = tern::plan::objection(*request.plan, request.shape());
  return problem == nullptr ? TERN_OK : refuse(problem);
}

// Slots: input and output are the same, or apart.
tern_status read_slots(const tern_op& op, OpRequest& request) {
  if (!request.plan->takes_client_blocks) return refuse("the operation takes no client_blocks");
  if (request.prescale != 1.0f) return refuse("blocks have no prescale: encode what has it");
  if (op.recipe != nullptr) return refuse("an operation with blocks has no recipe of its own");
  if (op.encoded != nullptr) {
    const tern_status status = read_struct(op.encoded, "encoded", request.encoded);
    if (status != TERN_OK) return status;
  }
  request.input = op.input != nullptr ? op.input : op.output;
  request.output = op.output != nullptr ? op.output : const_cast<void*>(op.input);
  if (request.input == nullptr) return refuse("input and output are both NULL");
  for (const void* const memory : {request.input, static_cast<const void*>(request.output)}) {
    if (reinterpret_cast<std::uintptr_t>(memory) % tern::shm::kCacheLine != 0) {
      return refuse("the slots of blocks must begin at a multiple of 64 bytes");
    }
  }
  if (request.input == request.output) return TERN_OK;
  return overlap({request.input, request.input_bytes()}, {request.output, request.output_bytes()})
             ? refuse("input and output overlap in part")
             : TERN_OK;
}

// The address that an op's first element has, or would have, where memory holds these elements.
std::uintptr_t first_element(const void* memory, const tern::plan::Range& elements,
                             std::size_t element) noexcept {
  return reinterpret_cast<std::uintptr_t>(memory) - elements.begin * element;
}

// Either pointer may be NULL for "in place": each element of the op then has one address.
tern_status read_memory(const tern_op& op, OpRequest& request) {
  if (request.has_blocks()) return read_slots(op, request);
  if (op.encoded != nullptr) return refuse("encoded is for tensors with client_blocks");
  const tern::plan::Extents extents = request.extents();
  const std::size_t element = tern::dtype_bytes(request.dtype);
  if (extents.input.count + extents.output.count == 0) return TERN_OK;
  if (request.plan->passes()) {
    // One of the two has a meaning.
    if (request.plan->sends()) {
      request.input = op.input;
      return op.input != nullptr ? TERN_OK : refuse("the input of a send is NULL");
    }
    request.output = op.output;
    return op.output != nullptr ? TERN_OK : refuse("the output of a recv is NULL");
  }
  if (op.input == nullptr && op.output == nullptr) return refuse("input and output are both NULL");
  if (request.plan->has_pairs() && ((op.input == nullptr && extents.input.count != 0) ||
                                    (op.output == nullptr && extents.output.count != 0))) {
    return refuse("the operation cannot be done in place; give both input and output");
  }
  if (request.plan->has_shares()) {
    if (op.input == nullptr && extents.input.count != 0 && extents.output.count == 0) {
      return refuse("input is NULL, and there is no output that it could be in");
    }
    if (op.output == nullptr && extents.output.count != 0 && extents.input.count == 0) {
      return refuse("output is NULL, and there is no input that it could be in");
    }
  }
  request.input = op.input;
  request.output = op.output;
  if (request.plan->has_pairs()) {
    // Nothing that is NULL is used.
  } else if (op.output == nullptr) {
    request.output = reinterpret_cast<void*>(first_element(op.input, extents.input, element) +
                                             extents.output.begin * element);
  } else if (op.input == nullptr) {
    request.input = reinterpret_cast<const void*>(
        first_element(op.output, extents.output, element) + extents.input.begin * element);
  }
  if (first_element(request.input, extents.input, element) ==
      first_element(request.output, extents.output, element)) {
    return TERN_OK;
  }
  // An input that nobody reads counts as long as the output: what is refused is the same for all
  // ranks. A share without elements lies nowhere.
  const std::uint64_t output_bytes = extents.output.count * element;
  const bool unread =
      extents.input.count == 0 && request.plan->contributors != tern::plan::Ranks::sharer;
  const std::uint64_t input_bytes = unread ? output_bytes : extents.input.count * element;
  if (overlap({request.input, input_bytes}, {request.output, output_bytes})) {
    return refuse("input and output overlap in part");
  }
  return TERN_OK;
}

tern_status read_recipe(const tern_op& op, OpRequest& request) {
  if (op.recipe == nullptr) return TERN_OK;
  const std::size_t length = ::strnlen(op.recipe, tern::shm::kRecipeTextBytes);
  if (length == 0 || length == tern::shm::kRecipeTextBytes) {
    set_error_detail("an operation's recipe must have 1..47 bytes");
    return TERN_ERR_BAD_RECIPE;
  }
  request.recipe = {op.recipe, length};
  return TERN_OK;
}

}  // namespace

tern_status tern::client_lib::read_op(const tern_group& group, const tern_op* passed,
                                      OpRequest& request) {
  tern_op op;  // what the caller passed, as this version knows it
  if (const tern_status sized = read_struct(passed, "op", op); sized != TERN_OK) return sized;
  request.group = group.state;
  request.priority = op.priority;
  tern_status status = check_reserved(op);
  if (status == TERN_OK) status = read_shape(group, op, request);
  if (status == TERN_OK) status = read_work(op, request);
  if (status == TERN_OK) status = read_received(op, request);
  if (status == TERN_OK) status = read_memory(op, request);
  if (status == TERN_OK) status = read_recipe(op, request);
  return status;
}

namespace {

tern_status submit(const tern_group& group, const OpRequest& request, tern_ticket* ticket) {
  const Status submitted = group.owner->client->submit({&request, 1}, {ticket, 1});
  return submitted ? TERN_OK : report_error(submitted.error());
}

tern_status submit_op(const tern::plan::Plan& plan, tern_group* group, const tern_op* op,
                      tern_ticket* ticket) {
  if (group == nullptr || op == nullptr || ticket == nullptr) {
    return refuse("group, op or ticket is NULL");
  }
  return guarded(*group->owner, [&]() -> tern_status {
    *ticket = 0;
    OpRequest request;
    request.plan = &plan;
    if (const tern_status status = read_op(*group, op, request); status != TERN_OK) return status;
    return submit(*group, request, ticket);
  });
}

}  // namespace

tern_status tern_all_reduce(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kAllReduce, group, op, ticket);
}

tern_status tern_broadcast(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kBroadcast, group, op, ticket);
}

tern_status tern_reduce(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kReduce, group, op, ticket);
}

tern_status tern_reduce_scatter(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kReduceScatter, group, op, ticket);
}

tern_status tern_all_gather(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kAllGather, group, op, ticket);
}

tern_status tern_gather(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kGather, group, op, ticket);
}

tern_status tern_scatter(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kScatter, group, op, ticket);
}

tern_status tern_all_to_all(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kAllToAll, group, op, ticket);
}

tern_status tern_send(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kSend, group, op, ticket);
}

tern_status tern_recv(tern_group* group, const tern_op* op, tern_ticket* ticket) {
  return submit_op(tern::plan::kRecv, group, op, ticket);
}

tern_status tern_barrier(tern_group* group, tern_ticket* ticket) {
  if (group == nullptr || ticket == nullptr) return refuse("group or ticket is NULL");
  return guarded(*group->owner, [&]() -> tern_status {
    *ticket = 0;
    OpRequest request;
    request.plan = &tern::plan::kBarrier;
    request.group = group->state;
    return submit(*group, request, ticket);
  });
}

tern_status tern_wait(tern_client* client, tern_ticket ticket, int64_t timeout_ms) {
  std::size_t index = 0;
  return tern_wait_any(client, &ticket, 1, timeout_ms, &index);
}

tern_status tern_test(tern_client* client, tern_ticket ticket) {
  return tern_wait(client, ticket, 0);
}

tern_status tern_wait_any(tern_client* client, const tern_ticket* tickets, size_t count,
                          int64_t timeout_ms, size_t* index) {
  if (client == nullptr || tickets == nullptr || index == nullptr || count == 0) {
    return refuse("client, tickets or index is NULL, or count is 0");
  }
  return guarded(*client, [&]() -> tern_status {
    if (!is_timeout(timeout_ms)) return refuse("timeout_ms must be -1 or more");
    return to_status(client->client->wait({tickets, count}, timeout_ms, *index));
  });
}

tern_status tern_cancel(tern_client* client, tern_ticket ticket) {
  if (client == nullptr) return refuse("client is NULL");
  return guarded(*client, [&]() -> tern_status {
    const Status cancelled = client->client->cancel(ticket);
    return cancelled ? TERN_OK : report_error(cancelled.error());
  });
}
