#pragma once

#include <cstddef>

#include "gyre/base/secret_key.h"

namespace gyre::net {

/// The secret of one job: every process that knows it belongs to the job.
using JobKey = SecretKey;
constexpr std::size_t kKeyBytes = JobKey::kBytes;

JobKey make_random_key();

}  // namespace gyre::net
