#include "examples/train_mnist/exchange.h"

#include <bit>
#include <chrono>

#include "examples/train_mnist/rendezvous.h"

namespace tern::train_mnist {
namespace {

Client connect(const ExchangeOptions& options) {
  tern_connect_options connection = TERN_CONNECT_OPTIONS_INIT;
  connection.socket_path = options.socket.empty() ? nullptr : options.socket.c_str();
  connection.job = "train_mnist";
  connection.arena_bytes = std::uint64_t{16} << 20;
  connection.timeout_ms = options.timeout_ms;
  return Client(connection);
}

Group join(Client* client, const ExchangeOptions& options) {
  tern_group_id id = {};
  if (options.rank == 0) {
    id = client->mint();
    publish_group_id(options.group_id_file, id);
  } else {
    id = await_group_id(options.group_id_file, std::chrono::milliseconds(options.timeout_ms));
  }
  tern_join_options join_options = TERN_JOIN_OPTIONS_INIT;
  join_options.rank = options.rank;
  join_options.size = options.size;
  join_options.timeout_ms = options.timeout_ms;
  join_options.op_timeout_ms = options.timeout_ms;
  return client->join(id, join_options);
}

}  // namespace

Exchange::Exchange(const ExchangeOptions& options)
    : options_(options),
      client_(connect(options)),
      group_(join(&client_, options)),
      gradients_(client_.allocate<float>(kParameterCount)) {
  for (const Parameter& parameter : kParameters) {
    // Biases are declared like weights; the daemon sends so small a tensor raw.
    tensors_.push_back(group_.declare<float>(std::string(parameter.name), parameter.count(),
                                             TERN_GRADIENT, options.recipe));
  }
}

// The group's op_timeout ends every operation; the wait is a little longer, so that its better
// explained failure comes first.
void Exchange::finish(Ticket* ticket) {
  if (!ticket->wait_for(options_.timeout_ms + 5000)) {
    throw Failure(TERN_ERR_TIMEOUT);
  }
}

void Exchange::broadcast(std::span<float> parameters) {
  Ticket ticket = group_.broadcast(parameters, 0);
  finish(&ticket);
}

void Exchange::begin(std::size_t layer) {
  for (const std::size_t index : {2 * layer, 2 * layer + 1}) {
    const Parameter& parameter = kParameters[index];
    tickets_[index] = group_.all_reduce(
        tensors_[index], gradients_.subspan(parameter.offset, parameter.count()), TERN_AVERAGE);
  }
}

void Exchange::wait(std::size_t layer) {
  for (const std::size_t index : {2 * layer, 2 * layer + 1}) {
    finish(&tickets_[index].value());
    tickets_[index].reset();
  }
}

void Exchange::barrier() {
  Ticket ticket = group_.barrier();
  finish(&ticket);
}

void Exchange::leave_together() {
  try {
    barrier();
  } catch (const Failure& failure) {
    // A rank whose barrier ended a moment earlier has left: every rank had come to the barrier.
    if (failure.status() != TERN_ERR_GROUP_LEFT) {
      throw;
    }
  }
}

bool Exchange::agree(std::span<const float> parameters) {
  const auto mine = std::bit_cast<std::int64_t>(checksum(parameters));
  std::int64_t least = mine;
  std::int64_t most = mine;
  Ticket first = group_.all_reduce(std::span(&least, 1), TERN_MIN);
  Ticket second = group_.all_reduce(std::span(&most, 1), TERN_MAX);
  finish(&first);
  finish(&second);
  return least == most;
}

std::uint64_t Exchange::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) {
    bytes += tensor.stats().bytes_sent;
  }
  return bytes;
}

std::uint64_t Exchange::bytes_raw() const {
  std::uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) {
    bytes += tensor.stats().bytes_raw;
  }
  return bytes;
}

std::uint64_t checksum(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : std::as_bytes(values)) {
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace tern::train_mnist
