#include "cuda/completion_thread.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <new>
#include <system_error>

#include "cuda/last_error.h"

namespace tern::cuda {
namespace {

// How often it looks whether the context is lost, after which nobody leaves a note.
constexpr int kLookMs = 100;
// Where libtern had no room, or its descriptor is readable for tickets that others do not fetch.
constexpr int kRetryMs = 1;
// More often in a row it is not for the lanes of one operation that the descriptor is readable.
constexpr int kMostFruitless = 16;

// Of two times to wait, of which a negative one has no end.
int sooner(int a_ms, int b_ms) {
  return a_ms < 0 || b_ms < 0 ? std::max(a_ms, b_ms) : std::min(a_ms, b_ms);
}

}  // namespace

Result<std::unique_ptr<CompletionThread>> CompletionThread::start(const Parts& parts) {
  int fd = -1;
  if (const auto status = tern_fd(parts.client, &fd); status != TERN_OK) {
    return tl::unexpected(error_of(status));
  }
  std::unique_ptr<CompletionThread> made(new CompletionThread(parts, fd));
  // Signals are the program's.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status started{};
  try {
    made->thread_ = std::thread([thread = made.get()] { thread->run(); });
  } catch (const std::system_error& error) {
    started = fail(Errc::out_of_memory, std::string("cannot start a thread: ") + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return tl::unexpected(started.error());
  return made;
}

CompletionThread::~CompletionThread() {
  if (!thread_.joinable()) return;
  stops_.store(true);
  parts_.mailbox.wake();
  thread_.join();
}

void CompletionThread::run() {
  // Without it the calls below fail, and operations end with what the driver says.
  parts_.driver.api().set_context(parts_.driver.context());
  // A program may capture a graph, which is invalid as soon as another thread asks for a stream.
  int mode = gpu::kCaptureRelaxed;
  parts_.driver.api().exchange_capture_mode(&mode);
  while (!stops_.load()) {
    sleep();
    take_notes();
    bool some_ended = false;
    for (std::uint32_t i = 0; i < parts_.table.count(); ++i) {
      Operation& operation = parts_.table.at(i);
      const Stage stage = parts_.table.stage_of(operation);
      if (stage == Stage::submitting) submit(operation);
      if (stage == Stage::reducing && parts_.table.take_cancel(operation)) {
        tern_cancel(parts_.client, operation.submitted);  // what fails here has ended
      }
      if (stage == Stage::reducing) some_ended = ask(operation) || some_ended;
    }
    if (some_ended) fruitless_ = 0;
    look_at_context();
    parts_.reporter.tell_if_due();
  }
}

void CompletionThread::sleep() {
  const bool is_for_others = fruitless_ > kMostFruitless;
  const bool retries = is_for_others || parts_.table.any_in({Stage::submitting});
  const bool looks = parts_.table.any_in({Stage::encoding, Stage::lowering, Stage::reducing,
                                          Stage::decoding, Stage::draining, Stage::enqueuing});
  const bool listens = !is_for_others && parts_.table.any_in({Stage::reducing});
  pollfd entries[] = {{parts_.mailbox.fd(), POLLIN, 0},
                      {listens ? tickets_fd_ : -1, POLLIN, 0}};  // a negative one is left out
  const int next_ms = retries ? kRetryMs : looks ? kLookMs : -1;
  ::poll(entries, 2, sooner(next_ms, parts_.reporter.due_in_ms()));
  fruitless_ = (entries[1].revents & POLLIN) != 0 ? fruitless_ + 1 : 0;
}

void CompletionThread::take_notes() {
  parts_.mailbox.take(notes_);
  for (const Mailbox::Note& note : notes_) {
    advance(parts_.table.at(note.place), parts_.table.stage_of(note.place, note.number));
  }
}

void CompletionThread::advance(Operation& operation, Stage stage) {
  switch (stage) {
    case Stage::encoding:
      return on_encoded(operation);
    case Stage::lowering:
      return operation.result ? submit(operation) : end(operation, operation.result);
    case Stage::decoding:
      return on_decoded(operation);
    case Stage::draining:
      return parts_.table.forget(operation);
    case Stage::free:
    case Stage::enqueuing:
    case Stage::submitting:
    case Stage::reducing:
    case Stage::ended:
      return;  // it was given up before the note came
  }
}

void CompletionThread::on_encoded(Operation& operation) {
  EncodePass& pass = operation.tensor->encode_pass();
  parts_.use.encoded(operation.tensor->encode_watch().elapsed_ns());
  const std::size_t not_finite = pass.read_outcomes();
  // Not on the stream of encoding, which may wait for the program's by now.
  if (auto paid = pass.pay_back(parts_.decode_stream); !paid) return end(operation, paid);
  if (not_finite == 0) return submit(operation);
  parts_.use.went_raw(not_finite);
  const gpu::Stream stream = parts_.decode_stream.get();
  // Also after an error the copies that are enqueued have to be done before a slot is used again.
  operation.result = pass.lower(stream);
  parts_.table.set_stage(operation, Stage::lowering);
  const Mailbox::Note note{operation.place, operation.number};
  auto asked =
      parts_.order.call_behind(stream, [&mailbox = parts_.mailbox, note] { mailbox.post(note); });
  if (asked) return;
  // Nobody will say when it is done. The stream waits for nothing, so that this does not take long.
  static_cast<void>(parts_.decode_stream.finish());
  end(operation, asked);
}

void CompletionThread::submit(Operation& operation) {
  if (parts_.table.take_cancel(operation)) {
    return end(operation, fail(Errc::cancelled, "it was cancelled before it was submitted"));
  }
  const BoundTensor& tensor = *operation.tensor;
  EncodePass& pass = operation.tensor->encode_pass();
  pass.write_raw_headers();
  tern_op op = TERN_OP_INIT;
  op.encoded = pass.told(tensor.encode_watch().elapsed_ns());
  op.tensor = tensor.tensor();
  op.input = tensor.slots().memory();
  op.output = tensor.slots().memory();
  op.reduction = operation.reduction;
  op.state_scale = operation.state_scale;
  op.priority = operation.priority;
  const tern_status status = tern_all_reduce(tensor.group(), &op, &operation.submitted);
  if (status == TERN_ERR_WOULD_BLOCK) {
    return parts_.table.set_stage(operation, Stage::submitting);
  }
  if (status != TERN_OK) return end(operation, tl::unexpected(error_of(status)));
  parts_.table.set_stage(operation, Stage::reducing);
}

// Whether it has ended.
bool CompletionThread::ask(Operation& operation) {
  tern_status status = tern_test(parts_.client, operation.submitted);
  if (status == TERN_ERR_TIMEOUT) return false;
  if (status == TERN_OK) {
    decode(operation);
    return true;
  }
  const Error error = error_of(status);
  // The call's own failure, or the operation's: then its ticket is gone.
  if (status == TERN_ERR_OUT_OF_MEMORY || status == TERN_ERR_INTERNAL) {
    status = tern_test(parts_.client, operation.submitted);
    if (status == TERN_ERR_TIMEOUT) return false;
    if (status == TERN_OK) {
      decode(operation);
      return true;
    }
  }
  end(operation, tl::unexpected(error));
  return true;
}

void CompletionThread::decode(Operation& operation) {
  const gpu::Stream stream = parts_.decode_stream.get();
  parts_.table.set_stage(operation, Stage::decoding);
  // The owners have the contributions, whatever happens to the result here.
  BoundTensor& tensor = *operation.tensor;
  tensor.encode_pass().commit();
  operation.result = enqueue_decoding(operation);
  parts_.use.decoded_by_processor(tensor.decode_pass().processor_blocks());
  // Also after an error: what is enqueued has to be done before anything is used again.
  const Mailbox::Note note{operation.place, operation.number};
  auto asked =
      parts_.order.call_behind(stream, [&mailbox = parts_.mailbox, &words = parts_.words, note] {
        words.release(note.place, note.number);
        mailbox.post(note);
      });
  if (asked) return;
  // As above: nothing is written any more when the program's stream goes on.
  static_cast<void>(parts_.decode_stream.finish());
  end(operation, asked);
}

Status CompletionThread::enqueue_decoding(Operation& operation) {
  const gpu::Stream stream = parts_.decode_stream.get();
  const gpu::Stopwatch& watch = operation.tensor->decode_watch();
  try {
    Status done = watch.begin(stream);
    if (done) {
      done = operation.tensor->decode_pass().enqueue(operation.output, workspace_, stream);
    }
    return done ? watch.end(stream) : done;
  } catch (const std::bad_alloc&) {
    return fail(Errc::out_of_memory, "the process has no memory left to decode a result in");
  }
}

void CompletionThread::on_decoded(Operation& operation) {
  BoundTensor& tensor = *operation.tensor;
  if (operation.result) {
    parts_.use.decoded(tensor.decode_watch().elapsed_ns());
    operation.result = tensor.decode_pass().verdict();
  }
  end(operation, operation.result);
}

void CompletionThread::look_at_context() {
  if (!parts_.table.any_in({Stage::encoding, Stage::lowering, Stage::decoding, Stage::draining})) {
    return;
  }
  // A lost context fails every call.
  const auto decoded = parts_.decode_stream.is_idle();
  if (!decoded) return fail_all_for(decoded.error());
  for (std::uint32_t i = 0; i < parts_.table.count(); ++i) {
    Operation& operation = parts_.table.at(i);
    if (parts_.table.stage_of(operation) != Stage::draining) continue;
    const auto encoded = operation.encoder->is_idle();
    if (encoded && *encoded) parts_.table.forget(operation);
  }
}

// What libtern has goes on, and fails when its results are to be decoded.
void CompletionThread::fail_all_for(const Error& error) {
  for (std::uint32_t i = 0; i < parts_.table.count(); ++i) {
    Operation& operation = parts_.table.at(i);
    switch (parts_.table.stage_of(operation)) {
      case Stage::encoding:
      case Stage::lowering:
      case Stage::decoding:
        end(operation, tl::unexpected(error));
        break;
      case Stage::draining:
        parts_.table.forget(operation);
        break;
      case Stage::free:
      case Stage::enqueuing:
      case Stage::submitting:
      case Stage::reducing:
      case Stage::ended:
        break;
    }
  }
}

void CompletionThread::end(Operation& operation, const Status& status) {
  parts_.use.ended(status.has_value());
  parts_.words.release(operation.place, operation.number);
  parts_.table.end(operation, status);
}

}  // namespace tern::cuda
