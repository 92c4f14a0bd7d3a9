// The C functions of a connection and its memory.

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/machine_memory.h"
#include "client_lib/default_arena.h"
#include "client_lib/handles.h"
#include "client_lib/sized_struct.h"

using namespace tern::client_lib;
using tern::Errc;
using tern::Result;
using tern::Status;

namespace {

constexpr std::int64_t kDefaultConnectMs = 5000;
constexpr std::size_t kMaxJobBytes = 63;

// The caller's text, else the environment's, else the default.
std::string text_or(const char* text, const char* variable, const char* otherwise) {
  if (text != nullptr) return text;
  const char* from_environment = ::secure_getenv(variable);
  return from_environment != nullptr && *from_environment != '\0' ? from_environment : otherwise;
}

tern_status connect(const tern_connect_options* passed, tern_client** client) {
  tern_connect_options options;
  if (const tern_status status = read_struct(passed, "options", options); status != TERN_OK) {
    return status;
  }
  if (options.reserved != 0) return refuse("options.reserved must be 0");
  if (!is_timeout(options.timeout_ms)) return refuse("options.timeout_ms must be -1 or more");
  if (options.arena_bytes > tern::shm::kMaxArenaBytes) return refuse("arena_bytes is above 16 TiB");
  ConnectOptions given;
  given.socket_path = text_or(options.socket_path, "TERN_SOCKET", "/run/tern/ternd.sock");
  given.job = text_or(options.job, "TERN_JOB", "default");
  if (given.job.empty() || given.job.size() > kMaxJobBytes)
    return refuse("job must have 1..63 bytes");
  given.arena_bytes = options.arena_bytes != 0 ? options.arena_bytes
                                               : default_arena_bytes(tern::machine_memory_bytes());
  given.timeout_ms = options.timeout_ms != 0 ? options.timeout_ms : kDefaultConnectMs;
  auto handle = std::make_unique<tern_client>();
  Result<std::unique_ptr<Client>> connected = Client::connect(given);
  if (!connected) return report_error(connected.error());
  handle->client = std::move(*connected);
  *client = handle.release();
  return TERN_OK;
}

}  // namespace

const char* tern_strerror(tern_status status) {
  // Literals, hence zero-terminated.
  return tern::errc_text(static_cast<Errc>(status)).data();
}

const char* tern_error_detail(void) { return error_detail(); }

const char* tern_version(void) { return TERN_VERSION_TEXT; }

tern_status tern_connect(const tern_connect_options* options, tern_client** client) {
  return guarded([&] {
    if (client == nullptr) return refuse("client is NULL");
    *client = nullptr;
    const tern_connect_options defaults = TERN_CONNECT_OPTIONS_INIT;
    return connect(options != nullptr ? options : &defaults, client);
  });
}

tern_status tern_disconnect(tern_client* client) {
  return guarded([&]() -> tern_status {
    if (client == nullptr) return TERN_OK;
    if (client->client->forked()) {
      client->client->drop_in_child();
      return TERN_ERR_FORKED;
    }
    client->client->disconnect();
    delete client;
    return TERN_OK;
  });
}

tern_status tern_alloc(tern_client* client, size_t bytes, void** memory) {
  if (client == nullptr || memory == nullptr) return refuse("client or memory is NULL");
  return guarded(*client, [&]() -> tern_status {
    *memory = nullptr;
    if (bytes == 0) return refuse("bytes is 0");
    const Result<void*> allocated = client->client->allocate(bytes);
    if (!allocated) return report_error(allocated.error());
    *memory = *allocated;
    return TERN_OK;
  });
}

tern_status tern_free(tern_client* client, void* memory) {
  if (client == nullptr) return refuse("client is NULL");
  return guarded(*client, [&]() -> tern_status {
    if (memory == nullptr) return TERN_OK;
    const Status freed = client->client->free(memory);
    return freed ? TERN_OK : report_error(freed.error());
  });
}

tern_status tern_region_create(tern_client* client, uint64_t bytes, void** memory) {
  if (client == nullptr || memory == nullptr) return refuse("client or memory is NULL");
  return guarded(*client, [&]() -> tern_status {
    *memory = nullptr;
    if (bytes == 0) return refuse("bytes is 0");
    const Result<void*> made = client->client->create_region(bytes);
    if (!made) return report_error(made.error());
    *memory = *made;
    return TERN_OK;
  });
}

tern_status tern_fd(tern_client* client, int* fd) {
  if (client == nullptr || fd == nullptr) return refuse("client or fd is NULL");
  return guarded(*client, [&]() -> tern_status {
    const Result<int> pollable = client->client->pollable_fd();
    if (!pollable) return report_error(pollable.error());
    *fd = *pollable;
    return TERN_OK;
  });
}
