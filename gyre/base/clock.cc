#include "gyre/base/clock.h"

#include <algorithm>
#include <limits>

namespace gyre {

Deadline Deadline::after(std::chrono::milliseconds duration) {
  constexpr std::chrono::milliseconds kCentury = std::chrono::hours(24 * 365 * 100);
  return Deadline(SteadyClock::now() + std::clamp(duration, -kCentury, kCentury));
}

int Deadline::poll_timeout_ms(int longest) const {
  if (!when_) return longest;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*when_ - SteadyClock::now()).count();
  const auto limit = longest < 0 ? std::numeric_limits<int>::max() : longest;
  return static_cast<int>(std::clamp<long long>(left, 0, limit));
}

std::int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace gyre
