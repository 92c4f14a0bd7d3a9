#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "codec/workspace.h"
#include "cuda/device_reporter.h"
#include "cuda/mailbox.h"
#include "cuda/operation_table.h"
#include "gpu/stream_order.h"
#include "gpu/stream_words.h"

// Takes operations from their encoded blocks to their end. A thread of the driver may not call the
// driver, so it only leaves a note here.
//
//   note: encoded -> (elements that are not finite follow) -> submitted to libtern
//   libtern says how it ended -> results on their way to the output
//   note: decoded -> the ticket ends
//
// In between it tells the daemon what the session does, when there is something new.
//
// The stream of decoding waits for nothing of the program's. So whatever waits for a word is not in
// the way of what brings it about.
namespace tern::cuda {

class CompletionThread {
 public:
  struct Parts {
    const gpu::Driver& driver;
    tern_client* client;
    const gpu::OwnStream& decode_stream;
    const gpu::StreamOrder& order;
    gpu::StreamWords& words;
    OperationTable& table;
    Mailbox& mailbox;
    DeviceUse& use;
    DeviceReporter& reporter;
  };
  // Requires: the parts outlive it.
  static Result<std::unique_ptr<CompletionThread>> start(const Parts& parts);
  // What is in flight then stays as it is.
  ~CompletionThread();
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

 private:
  CompletionThread(const Parts& parts, int tickets_fd) : parts_(parts), tickets_fd_(tickets_fd) {}

  void run();
  void sleep();
  void take_notes();
  void advance(Operation& operation, Stage stage);
  void on_encoded(Operation& operation);
  void submit(Operation& operation);
  bool ask(Operation& operation);
  void decode(Operation& operation);
  Status enqueue_decoding(Operation& operation);
  void on_decoded(Operation& operation);
  void fail_all_for(const Error& error);
  void look_at_context();
  void end(Operation& operation, const Status& status);

  Parts parts_;
  int tickets_fd_;
  codec::Workspace workspace_;
  std::vector<Mailbox::Note> notes_;
  int fruitless_ = 0;  // times in a row that the descriptor was readable and nothing had ended
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace tern::cuda
