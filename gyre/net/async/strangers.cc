#include "gyre/net/async/strangers.h"

#include <algorithm>

namespace gyre::net {

std::size_t most_strangers(std::size_t expected, std::size_t open_files) {
  constexpr std::size_t kOthers = 256;
  return std::clamp(open_files / 2, kOthers + expected, kOthers + 2 * expected);
}

}  // namespace gyre::net
