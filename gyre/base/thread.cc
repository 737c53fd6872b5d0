#include "gyre/base/thread.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "gyre/base/error.h"

namespace gyre {

std::thread start_thread(std::string_view purpose, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(
        ErrorCode::kResourceExhausted,
        fmt::format("the system gives no thread for {}: {} (see `ulimit -u`, `ulimit -v` and the container's limit "
                    "of processes)",
                    purpose, error.code().message()));
  }
}

}  // namespace gyre
