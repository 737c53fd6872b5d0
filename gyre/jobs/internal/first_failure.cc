#include "gyre/jobs/internal/first_failure.h"

#include <csignal>

#include "gyre/base/check.h"

namespace gyre::jobs {

namespace {

constexpr int kStrongest = 3;

int evidence(const ExitStatus& status) {
  constexpr int kSignals = 64;
  int signal = status.signal;
  if (signal == 0 && status.code > 128 && status.code <= 128 + kSignals) signal = status.code - 128;
  if (signal == 0) return 1;
  return signal == SIGABRT || signal == SIGPIPE ? 2 : kStrongest;
}

}  // namespace

void FirstFailure::add(const RankFailure& failure) {
  GYRE_CHECK(!failure.status.success());
  if (!best_) {
    best_ = failure;
    first_seen_ = failure.when;
    return;
  }
  if (final_at(failure.when)) return;
  if (evidence(failure.status) > evidence(best_->status)) best_ = failure;
}

std::optional<RankFailure> FirstFailure::final_at(SteadyClock::time_point now) const {
  if (!best_) return std::nullopt;
  const bool settled = evidence(best_->status) == kStrongest || now >= *settles_at();
  return settled ? best_ : std::nullopt;
}

std::optional<SteadyClock::time_point> FirstFailure::settles_at() const {
  if (!best_) return std::nullopt;
  return evidence(best_->status) == kStrongest ? first_seen_ : first_seen_ + kSettleTime;
}

}  // namespace gyre::jobs
