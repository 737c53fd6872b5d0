#pragma once

#include <array>
#include <cstddef>

namespace gyre::net {

/// The secret of one job: every process that knows it belongs to the job.
constexpr std::size_t kKeyBytes = 32;
using JobKey = std::array<std::byte, kKeyBytes>;

JobKey make_random_key();

}  // namespace gyre::net
