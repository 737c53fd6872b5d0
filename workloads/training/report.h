#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gyre/train/learning_rate.h"

namespace gyre::training {

/// Prints lines at once, also where the output is a file.
void say(std::string_view lines);

/// "2 ranks x batch 32"
std::string describe_batch(int ranks, std::uint64_t batch_per_rank);

/// "learning rate 0.1 after 5 epochs of warm-up"
std::string describe_rate(const train::EpochSchedule& schedule);

}  // namespace gyre::training
