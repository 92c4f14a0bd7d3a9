#include "cuda/operation_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tern::cuda {
namespace {

Error unknown_ticket() {
  return {Errc::unknown_ticket,
          "the ticket is not of this library, or its end was reported already"};
}

}  // namespace

OperationTable::OperationTable(std::uint32_t count) : operations_(count) {
  for (std::uint32_t i = 0; i < count; ++i) operations_[i].place = i;
}

Result<Operation*> OperationTable::begin(BoundTensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (tensor.in_use) {
    return fail(Errc::would_block, "the tensor has an operation in flight: wait for its ticket");
  }
  const auto free = std::ranges::find(operations_, Stage::free, &Operation::stage);
  if (free == operations_.end()) {
    return fail(Errc::would_block,
                "as many operations are in flight or not yet reported as tern_cuda_options says: "
                "wait for a ticket");
  }
  Operation& operation = *free;
  operation.stage = Stage::enqueuing;
  operation.tensor = &tensor;
  operation.ticket = next_ticket_++;
  ++operation.number;
  operation.result = {};
  operation.is_unwanted = false;
  operation.said = {Errc::ok, {}};
  tensor.in_use = true;
  return &operation;
}

void OperationTable::set_stage(Operation& operation, Stage stage) {
  const std::lock_guard lock(mutex_);
  operation.stage = stage;
}

Stage OperationTable::stage_of(const Operation& operation) const {
  const std::lock_guard lock(mutex_);
  return operation.stage;
}

Stage OperationTable::stage_of(std::uint32_t place, std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const Operation& operation = operations_[place];
  return operation.number == number ? operation.stage : Stage::free;
}

void OperationTable::give_up(Operation& operation) {
  const std::lock_guard lock(mutex_);
  operation.stage = operation.stage == Stage::ended ? Stage::free : Stage::draining;
}

bool OperationTable::any_in(std::initializer_list<Stage> stages) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(operations_, [&](const Operation& operation) {
    return std::ranges::find(stages, operation.stage) != stages.end();
  });
}

void OperationTable::forget(Operation& operation) {
  const std::lock_guard lock(mutex_);
  operation.tensor->in_use = false;
  operation.stage = Stage::free;
}

void OperationTable::end(Operation& operation, const Status& status) {
  const std::lock_guard lock(mutex_);
  operation.tensor->in_use = false;
  operation.said = status ? Error{Errc::ok, {}} : status.error();
  operation.stage = Stage::ended;
  ended_.notify_all();
}

Operation* OperationTable::find(tern_ticket ticket) noexcept {
  const auto found = std::ranges::find_if(operations_, [ticket](const Operation& operation) {
    return operation.ticket == ticket && operation.stage != Stage::free &&
           operation.stage != Stage::draining;
  });
  return found == operations_.end() ? nullptr : &*found;
}

Error OperationTable::take_end(Operation& operation) {
  operation.stage = Stage::free;
  return std::move(operation.said);
}

Error OperationTable::wait(tern_ticket ticket, std::int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  // Another thread may take the end meanwhile.
  Operation* operation = nullptr;
  const auto is_over = [&] {
    operation = find(ticket);
    return operation == nullptr || operation->stage == Stage::ended;
  };
  constexpr std::int64_t kLong = std::int64_t{1} << 40;
  const std::chrono::milliseconds timeout(timeout_ms < 0 ? kLong : std::min(timeout_ms, kLong));
  if (!ended_.wait_for(lock, timeout, is_over)) {
    return {Errc::timeout, "the operation is still running"};
  }
  if (operation == nullptr) return unknown_ticket();
  return take_end(*operation);
}

Status OperationTable::cancel(tern_ticket ticket) {
  const std::lock_guard lock(mutex_);
  Operation* const operation = find(ticket);
  if (operation == nullptr) return tl::unexpected(unknown_ticket());
  operation->is_unwanted = true;
  return {};
}

bool OperationTable::take_cancel(Operation& operation) {
  const std::lock_guard lock(mutex_);
  return std::exchange(operation.is_unwanted, false);
}

bool OperationTable::hold(BoundTensor& tensor) {
  const std::lock_guard lock(mutex_);
  if (tensor.in_use) return false;
  tensor.in_use = true;
  return true;
}

void OperationTable::let_go(BoundTensor& tensor) {
  const std::lock_guard lock(mutex_);
  tensor.in_use = false;
}

}  // namespace tern::cuda
