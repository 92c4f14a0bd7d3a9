#pragma once

#include <condition_variable>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/bound_tensor.h"

// The operations that are in flight or not yet reported.
namespace tern::cuda {

// How far an operation is.
enum class Stage : std::uint8_t {
  free,
  enqueuing,   // a thread of the program enqueues its kernels
  encoding,    // behind the program's work and the kernels; a note follows
  lowering,    // elements of chunks that are not finite are on their way; a note follows
  submitting,  // libtern had no room
  reducing,    // libtern has it
  decoding,    // results are on their way to the output; a note follows
  draining,    // the call has failed, and kernels may still run; a note may follow
  ended,       // until it is reported
};

struct Operation {
  std::uint32_t place = 0;   // in the table, and the word for which its stream waits
  std::uint64_t number = 0;  // of those that had the place, and the value of the word
  tern_ticket ticket = 0;
  const gpu::OwnStream* encoder = nullptr;  // where its kernels encode
  BoundTensor* tensor = nullptr;
  gpu::DeviceAddress output = 0;
  tern_reduction reduction = TERN_SUM;
  float state_scale = 1.0f;
  std::int32_t priority = 0;
  tern_ticket submitted = 0;  // of libtern
  Status result{};            // known before the end: why it will fail
  // Guarded by: the table's mutex.
  Stage stage = Stage::free;
  bool is_unwanted = false;  // its end has been asked for, and libtern has not been told
  Error said{Errc::ok, {}};  // ended: how
};

// Thread: any. No call of the driver or of libtern is made under its mutex. An operation is of the
// thread that enqueues it, and after `encoding` of the completion thread.
class OperationTable {
 public:
  explicit OperationTable(std::uint32_t count);

  // The tensor's operation, in stage `enqueuing`. TERN_ERR_WOULD_BLOCK if it has one, or there is no
  // place.
  Result<Operation*> begin(BoundTensor& tensor);
  Operation& at(std::uint32_t place) noexcept { return operations_[place]; }
  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(operations_.size()); }

  void set_stage(Operation& operation, Stage stage);
  Stage stage_of(const Operation& operation) const;
  // Of the operation that had the place as this number; `free` if that is no more.
  Stage stage_of(std::uint32_t place, std::uint64_t number) const;
  bool any_in(std::initializer_list<Stage> stages) const;
  // Its ticket is nobody's. It drains, unless it has ended meanwhile.
  void give_up(Operation& operation);
  // Reported to nobody.
  void forget(Operation& operation);
  void end(Operation& operation, const Status& status);

  // Errc::timeout: it still runs. Errc::ok: it has succeeded. Otherwise why it failed.
  Error wait(tern_ticket ticket, std::int64_t timeout_ms);

  // Asks for its end. Errc::unknown_ticket: it was reported.
  Status cancel(tern_ticket ticket);
  // Whether that has been asked since the last time.
  bool take_cancel(Operation& operation);

  // Keeps operations from a tensor. False: one is in flight.
  bool hold(BoundTensor& tensor);
  void let_go(BoundTensor& tensor);

 private:
  Operation* find(tern_ticket ticket) noexcept;
  Error take_end(Operation& operation);

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Operation> operations_;
  tern_ticket next_ticket_ = 1;
};

}  // namespace tern::cuda
