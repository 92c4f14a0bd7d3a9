#pragma once

#include <string_view>

#include "base/result.h"
#include "client_lib/include/tern/tern.h"

// What this library says of failures: Error inside; outside a status, and a sentence for each
// thread.
namespace tern::cuda {

// The text of tern_cuda_error_detail().
void set_error_detail(std::string_view text) noexcept;
const char* error_detail() noexcept;

// The sentence goes to the thread's detail.
tern_status report(const Error& error) noexcept;
tern_status report(const Status& status) noexcept;

// What a call of libtern that has just failed on this thread says.
Error error_of(tern_status status);

}  // namespace tern::cuda
