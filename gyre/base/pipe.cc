#include "gyre/base/pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "gyre/base/error.h"

namespace gyre {

Pipe make_pipe(std::string_view what) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_error(fmt::format("cannot make {}", what), errno);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace gyre
