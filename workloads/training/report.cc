#include "workloads/training/report.h"

#include <fmt/format.h>

#include <cstdio>

namespace gyre::training {

void say(std::string_view lines) {
  fmt::print("{}\n", lines);
  std::fflush(stdout);
}

std::string describe_batch(int ranks, std::uint64_t batch_per_rank) {
  return fmt::format("{} {} x batch {}", ranks, ranks == 1 ? "rank" : "ranks", batch_per_rank);
}

std::string describe_rate(const train::EpochSchedule& schedule) {
  return fmt::format(
      "learning rate {}{}", schedule.peak,
      schedule.warmup_epochs > 0 ? fmt::format(" after {} epochs of warm-up", schedule.warmup_epochs) : "");
}

}  // namespace gyre::training
