#include "gyre/params/internal/channel.h"

#include <fmt/format.h>

#include <exception>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/params/internal/requests.h"

namespace gyre::params::internal {

std::string describe_message(std::uint8_t type, std::size_t size_bytes) {
  return type == kInPlaceType ? "values in shared memory" : format_bytes(size_bytes);
}

void wait_for_all(std::span<const group::MessageHandle> handles) {
  std::exception_ptr failure;
  for (const group::MessageHandle& handle : handles) {
    try {
      handle.wait();
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void check_layout(const group::Group& group, const Layout& layout, bool as_server) {
  if (layout.workers >= 1 && layout.servers >= 1 && layout.size() == group.size() &&
      layout.is_server(group.rank()) == as_server) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("rank {} of {} cannot be a {} in a job of {} workers and {} servers", group.rank(),
                          group.size(), as_server ? "server" : "worker", layout.workers, layout.servers));
}

}  // namespace gyre::params::internal
