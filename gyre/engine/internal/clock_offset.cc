#include "gyre/engine/internal/clock_offset.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/engine/internal/channels.h"
#include "gyre/net/stream.h"

namespace gyre::engine::internal {

namespace {

constexpr int kMessages = 16;
using Moment = std::array<std::byte, sizeof(std::int64_t)>;

void answer(net::Stream& asking, Deadline deadline) {
  for (int message = 0; message < kMessages; ++message) {
    Moment moment{};
    net::read_exactly(asking, std::span(moment).first(1), deadline);
    const std::int64_t now_us = wall_clock_us();
    std::memcpy(moment.data(), &now_us, sizeof now_us);
    net::write_exactly(asking, moment, deadline);
  }
}

std::chrono::microseconds ask(net::Stream& first, Deadline deadline) {
  std::int64_t shortest_us = std::numeric_limits<std::int64_t>::max();
  std::int64_t offset_us = 0;
  for (int message = 0; message < kMessages; ++message) {
    Moment moment{};
    const std::int64_t sent_us = wall_clock_us();
    net::write_exactly(first, std::span(moment).first(1), deadline);
    net::read_exactly(first, moment, deadline);
    const std::int64_t back_us = wall_clock_us();
    std::int64_t there_us = 0;
    std::memcpy(&there_us, moment.data(), sizeof there_us);
    if (back_us - sent_us >= shortest_us) continue;
    shortest_us = back_us - sent_us;
    offset_us = there_us - (sent_us + shortest_us / 2);
  }
  return std::chrono::microseconds(offset_us);
}

}  // namespace

std::optional<std::chrono::microseconds> clock_offset(group::Group& group, std::chrono::milliseconds longest) {
  const Deadline deadline = Deadline::after(longest);
  try {
    for (const auto& ranks : group.topology().hosts()) {
      const int asking = ranks.front();
      if (asking == 0) continue;
      if (group.rank() == 0) answer(*group.open_link(asking, kClockChannel, deadline), deadline);
      if (group.rank() == asking) return ask(*group.open_link(0, kClockChannel, deadline), deadline);
    }
  } catch (const Error&) {
    // Timelines of hosts whose clocks differ are of some use still; what fails the group is noticed elsewhere.
  }
  return std::nullopt;
}

}  // namespace gyre::engine::internal
