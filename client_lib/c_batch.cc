// The C function of batches.

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "client_lib/handles.h"
#include "client_lib/op_reading.h"
#include "client_lib/output_overlap.h"
#include "client_lib/sized_struct.h"
#include "plan/plans.h"

using namespace tern::client_lib;
using tern::Status;

namespace {

tern_status refuse(const std::string& text) noexcept {
  return tern::client_lib::refuse(text.c_str());
}

tern_status read_batch_op(const tern_group& group, const tern_batch_op& passed,
                          OpRequest& request) {
  const std::uint32_t kind = raw(passed.kind);
  request.plan = kind <= 0xffff ? tern::plan::find(static_cast<std::uint16_t>(kind)) : nullptr;
  if (request.plan == nullptr) {
    return refuse("kind " + std::to_string(kind) + " is not one of tern_op_kind");
  }
  if (passed.reserved != 0) return refuse("reserved must be 0");
  request.group = group.state;
  if (request.plan->work == tern::plan::Work::none) {
    return passed.op == nullptr ? TERN_OK : refuse("it has no values: op must be NULL");
  }
  return passed.op == nullptr ? refuse("op is NULL") : read_op(group, passed.op, request);
}

// Judges every op before any is submitted.
tern_status read_batch(const tern_group& group, const tern_batch& batch,
                       std::vector<OpRequest>& requests) {
  const std::uint64_t limit = group.state->max_ops_in_flight;
  if (batch.reserved != 0) return refuse("batch.reserved must be 0");
  if (batch.ops == nullptr || batch.count == 0) return refuse("the batch has no operations");
  if (batch.count > limit || batch.count > kMaxOps) {
    return refuse("a batch of " + std::to_string(batch.count) + " operations is too large: the " +
                  "group's max_ops_in_flight is " + std::to_string(limit) +
                  ", and a client has at most " + std::to_string(kMaxOps));
  }
  requests.resize(batch.count);
  for (std::size_t i = 0; i < batch.count; ++i) {
    const tern_status status = read_batch_op(group, batch.ops[i], requests[i]);
    if (status == TERN_OK) continue;
    const char* const kind = requests[i].plan != nullptr ? requests[i].plan->name : "unknown";
    set_error_detail(in_batch(i, kind, error_detail()));
    return status;
  }
  const auto passing = std::count_if(requests.begin(), requests.end(),
                                     [](const OpRequest& one) { return one.plan->passes(); });
  if (passing > tern::plan::kMaxPassing) {
    return refuse("a batch of " + std::to_string(passing) +
                  " sends and recvs is too large: a rank has at most 256 in flight in a group");
  }
  if (const auto overlap = find_output_overlap(requests)) {
    return refuse(in_batch(overlap->second, requests[overlap->second].plan->name,
                           "its memory and that of operation " + std::to_string(overlap->first) +
                               " overlap, and one of them writes there"));
  }
  return TERN_OK;
}

}  // namespace

tern_status tern_submit_batch(tern_group* group, const tern_batch* passed, tern_ticket* ticket) {
  if (group == nullptr || passed == nullptr) return refuse("group or batch is NULL");
  return guarded(*group->owner, [&]() -> tern_status {
    if (ticket != nullptr) *ticket = 0;
    tern_batch batch;
    if (const tern_status sized = read_struct(passed, "batch", batch); sized != TERN_OK) {
      return sized;
    }
    if (ticket == nullptr && batch.tickets == nullptr) {
      return refuse("ticket and batch.tickets are both NULL");
    }
    std::vector<OpRequest> requests;
    if (const tern_status status = read_batch(*group, batch, requests); status != TERN_OK) {
      return status;
    }
    const std::span<tern_ticket> tickets =
        batch.tickets == nullptr ? std::span(ticket, 1) : std::span(batch.tickets, batch.count);
    const Status submitted = group->owner->client->submit(requests, tickets);
    return submitted ? TERN_OK : report_error(submitted.error());
  });
}
