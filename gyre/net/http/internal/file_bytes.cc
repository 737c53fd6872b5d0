#include "gyre/net/http/internal/file_bytes.h"

#include <unistd.h>

#include <cerrno>

#include "gyre/base/error.h"

namespace gyre::net::http::internal {

struct stat status_of(const UniqueFd& file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) throw system_error("looking at a file", errno);
  return status;
}

std::string read_at(const UniqueFd& file, std::uint64_t offset, std::size_t most) {
  std::string bytes(most, '\0');
  ssize_t count = 0;
  do {
    count = ::pread(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  } while (count < 0 && errno == EINTR);
  if (count < 0) throw system_error("reading a file", errno);
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

}  // namespace gyre::net::http::internal
