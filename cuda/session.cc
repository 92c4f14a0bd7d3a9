#include "cuda/session.h"

#include <cstdlib>
#include <new>
#include <string_view>

#include "cuda/keep.h"
#include "cuda/kernel_image.h"
#include "cuda/last_error.h"

namespace tern::cuda {
namespace {

Error in_flight() {
  return {Errc::would_block, "the tensor has an operation in flight: wait for its ticket"};
}

Status no_memory() { return fail(Errc::out_of_memory, "the process has no memory left"); }

// Keeps operations from a tensor while it lives.
class Held {
 public:
  Held(OperationTable& table, BoundTensor& tensor) : table_(table), tensor_(tensor) {
    is_held_ = table_.hold(tensor_);
  }
  ~Held() {
    if (is_held_) table_.let_go(tensor_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  explicit operator bool() const noexcept { return is_held_; }

 private:
  OperationTable& table_;
  BoundTensor& tensor_;
  bool is_held_;
};

// With one connection all streams of the program are one queue of the device, in which a stream
// that waits for a result stands before the kernels that bring the result.
bool has_one_queue() {
  const char* const connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return connections != nullptr && std::string_view(connections) == "1";
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(tern_client* client, const Options& options) {
  std::unique_ptr<Session> session(new Session(client, options.operations));
  if (auto set_up = session->set_up(options); !set_up) return tl::unexpected(set_up.error());
  return session;
}

Status Session::set_up(const Options& options) {
  const void* const image = options.image != nullptr ? options.image : kernel_image();
  if (image == nullptr) {
    return fail(Errc::unsupported,
                "this build of libtern_cuda has no kernels: install one that was built where nvcc "
                "is, or name a fat binary in tern_cuda_options.image");
  }
  if (has_one_queue()) {
    return fail(Errc::unsupported,
                "CUDA_DEVICE_MAX_CONNECTIONS=1 has all streams in one queue, in which one that "
                "waits for the network stops all: unset it, or set it to 8 or more");
  }
  auto kept = keep(gpu::Driver::open(options.driver), driver_);
  if (!kept) return kept;
  kept = keep(gpu::Kernels::load(*driver_, image), kernels_);
  if (!kept) return kept;
  device_ = std::make_unique<Device>(Device{*driver_, *kernels_});
  encode_streams_ = std::make_unique<gpu::FollowingStreams>(*driver_);
  if (kept = keep(gpu::OwnStream::create(*driver_), decode_stream_); !kept) return kept;
  if (kept = keep(gpu::StreamOrder::create(*driver_), order_); !kept) return kept;
  if (kept = keep(gpu::StreamWords::create(*driver_, table_.count()), words_); !kept) return kept;
  if (kept = keep(Mailbox::create(table_.count()), mailbox_); !kept) return kept;
  reporter_ = std::make_unique<DeviceReporter>(client_, driver_->device().number, use_, clock_);
  return keep(CompletionThread::start({*driver_, client_, *decode_stream_, *order_, *words_, table_,
                                       *mailbox_, use_, *reporter_}),
              thread_);
}

// The driver's things go in its context, from the last one on.
Session::~Session() {
  thread_.reset();
  if (reporter_ != nullptr) reporter_->tell_rest();
  if (driver_ == nullptr) return;
  const gpu::ContextScope scope(*driver_);
  words_.reset();
  order_.reset();
  decode_stream_.reset();
  encode_streams_.reset();
  kernels_.reset();
}

Result<std::unique_ptr<BoundTensor>> Session::bind(tern_group* group, tern_tensor* tensor) {
  const gpu::ContextScope scope(*driver_);
  if (auto entered = scope.entered(); !entered) return tl::unexpected(entered.error());
  bool pin_failed = false;
  auto bound = BoundTensor::create({*device_, client_, group, *decode_stream_}, tensor, pin_failed);
  if (pin_failed) use_.pinning_failed(bound.error().text);
  if (bound) use_.hold((*bound)->held());
  if (bound) ++tensors_;
  mailbox_->wake();  // it tells the daemon
  return bound;
}

Status Session::release(std::unique_ptr<BoundTensor>& tensor) {
  if (!table_.hold(*tensor)) return tl::unexpected(in_flight());
  const HeldBytes held = tensor->held();
  Status handed_over{};
  {
    const gpu::ContextScope scope(*driver_);
    try {
      handed_over = tensor->hand_over();
    } catch (const std::bad_alloc&) {
      handed_over = no_memory();
    }
    tensor.reset();
  }
  use_.let_go(held);
  --tensors_;
  mailbox_->wake();
  return handed_over;
}

Result<tern_ticket> Session::all_reduce(BoundTensor& tensor, const Work& work,
                                        gpu::Stream program) {
  const gpu::ContextScope scope(*driver_);
  if (auto entered = scope.entered(); !entered) return tl::unexpected(entered.error());
  const std::lock_guard one_at_a_time(enqueue_mutex_);
  auto begun = table_.begin(tensor);
  if (!begun) return tl::unexpected(begun.error());
  Operation& operation = **begun;
  const tern_ticket ticket = operation.ticket;
  operation.output = work.output;
  operation.reduction = work.reduction;
  operation.state_scale = work.state_scale;
  operation.priority = work.priority;
  if (auto enqueued = enqueue(operation, work, program); !enqueued) {
    return tl::unexpected(enqueued.error());
  }
  mailbox_->wake();  // from now on it looks whether the context is lost
  return ticket;
}

Result<BoundTensor::NextUse> Session::prepare(BoundTensor& tensor) {
  try {
    return tensor.prepare();
  } catch (const std::bad_alloc&) {
    return tl::unexpected(no_memory().error());
  }
}

Status Session::enqueue(Operation& operation, const Work& work, gpu::Stream program) {
  const auto next = prepare(*operation.tensor);
  const Result<const gpu::OwnStream*> encoder =
      next ? encode_streams_->behind(program) : tl::unexpected(next.error());
  Status done = encoder ? order_->follow((*encoder)->get(), program)
                        : Status(tl::unexpected(encoder.error()));
  // Before anything runs: a stream that cannot wait gets no operation.
  if (done && work.stream_waits) {
    done = words_->wait(program, operation.place, operation.number);
  }
  if (!done) {
    table_.forget(operation);
    return done;
  }
  operation.encoder = *encoder;
  const bool is_sum = work.reduction == TERN_SUM || work.reduction == TERN_AVERAGE;
  try {
    done = enqueue_encoding(operation,
                            {work.input, work.state_scale, next->step, next->raw_first, is_sum});
  } catch (const std::bad_alloc&) {
    done = no_memory();
  }
  if (!done) give_up(operation);
  return done;
}

Status Session::enqueue_encoding(Operation& operation, const EncodePass::Input& input) {
  const gpu::Stream stream = operation.encoder->get();
  const gpu::Stopwatch& watch = operation.tensor->encode_watch();
  auto done = watch.begin(stream);
  if (done) done = operation.tensor->encode_pass().enqueue(input, stream);
  if (done) done = watch.end(stream);
  if (!done) return done;
  // From the note on the operation is the completion thread's.
  table_.set_stage(operation, Stage::encoding);
  return call_behind_encoding(operation);
}

Status Session::call_behind_encoding(const Operation& operation) {
  const Mailbox::Note note{operation.place, operation.number};
  return order_->call_behind(operation.encoder->get(),
                             [mailbox = mailbox_.get(), note] { mailbox->post(note); });
}

// The program's stream goes on. What is enqueued still reads and writes what the tensor has, which
// nobody gets until it is done.
void Session::give_up(Operation& operation) {
  words_->release(operation.place, operation.number);
  table_.give_up(operation);
  // Without a note the completion thread looks at the stream now and then.
  try {
    static_cast<void>(call_behind_encoding(operation));
  } catch (const std::bad_alloc&) {
  }
  mailbox_->wake();
}

Status Session::cancel(tern_ticket ticket) {
  if (auto asked = table_.cancel(ticket); !asked) return asked;
  mailbox_->wake();
  return {};
}

Result<StatePart> Session::export_state(BoundTensor& tensor) {
  const Held held(table_, tensor);
  if (!held) return tl::unexpected(in_flight());
  const gpu::ContextScope scope(*driver_);
  return tensor.export_state();
}

Status Session::import_state(BoundTensor& tensor, const Parts& parts) {
  const Held held(table_, tensor);
  if (!held) return tl::unexpected(in_flight());
  const gpu::ContextScope scope(*driver_);
  const tern_status status =
      tern_tensor_import_state(tensor.tensor(), parts.parts, parts.bytes, parts.count);
  return status == TERN_OK ? tensor.read_residual() : Status(tl::unexpected(error_of(status)));
}

}  // namespace tern::cuda
