#include "gyre/launch/internal/job_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "gyre/base/error.h"

namespace gyre::launch {

JobMetrics::JobMetrics(const std::filesystem::path& file, const std::vector<std::pair<std::string, std::string>>& facts,
                       int ranks)
    : name_(file.string()), ranks_(ranks), writer_(file) {
  if (!writer_.earlier().empty()) {
    words_ = fmt::format("gyre run: {} was that of an earlier job; it is now {}", name_, writer_.earlier().string());
  }
  for (const auto& [key, value] : facts) writer_.note(key, value);
}

void JobMetrics::add(std::span<const metrics::Sample> samples) {
  if (failed_) return;
  std::vector<metrics::Sample> ours;
  std::ranges::copy_if(samples, std::back_inserter(ours), [this](const auto& each) { return each.rank < ranks_; });
  try {
    writer_.add(ours);
    if (writer_.dropped() > 0 && !std::exchange(said_full_, true)) {
      words_ = fmt::format("gyre run: {} is full; some of what the ranks log from here on is left out", name_);
    }
  } catch (const Error& error) {
    failed_ = true;
    words_ = fmt::format("gyre run: {}; no metrics are kept from here on", error.what());
  }
}

void JobMetrics::finish(int exit_code) {
  if (failed_) return;
  try {
    if (writer_.dropped() > 0) writer_.note("dropped", std::to_string(writer_.dropped()));
    writer_.note("exit_code", std::to_string(exit_code));
  } catch (const Error& error) {
    words_ = fmt::format("gyre run: {}", error.what());
  }
}

}  // namespace gyre::launch
