#include "gyre/jobs/internal/first_failure.h"

#include <csignal>

#include "gyre/base/check.h"

namespace gyre::jobs {

namespace {

constexpr int kStrongest = 4;
constexpr int kBlamed = 3;

int signal_in(const ExitStatus& status) {
  constexpr int kSignals = 64;
  const bool from_shell = status.signal == 0 && status.code > 128 && status.code <= 128 + kSignals;
  return from_shell ? status.code - 128 : status.signal;
}

}  // namespace

int FirstFailure::evidence(const RankFailure& failure) const {
  const int signal = signal_in(failure.status);
  const bool may_be_a_consequence = signal == 0 || signal == SIGABRT || signal == SIGPIPE;
  if (!may_be_a_consequence) return kStrongest;
  if (failure.rank == blamed_) return kBlamed;
  return signal == 0 ? 1 : 2;
}

void FirstFailure::add(const RankFailure& failure) {
  GYRE_CHECK(!failure.status.success());
  if (!best_) {
    best_ = failure;
    first_seen_ = failure.when;
    return;
  }
  if (evidence(failure) > evidence(*best_)) best_ = failure;
}

std::optional<RankFailure> FirstFailure::final_at(SteadyClock::time_point now) const {
  if (!best_) return std::nullopt;
  const bool settled = evidence(*best_) == kStrongest || now >= *settles_at();
  return settled ? best_ : std::nullopt;
}

std::optional<SteadyClock::time_point> FirstFailure::settles_at() const {
  if (!best_) return std::nullopt;
  if (evidence(*best_) == kStrongest) return first_seen_;
  const bool blamed_is_missing = blamed_ && best_->rank != *blamed_ && !ended_well_.contains(*blamed_);
  if (blamed_is_missing) return first_seen_ + kBlamedSettleTime;
  return first_seen_ + (dying_ ? kDyingSettleTime : kSettleTime);
}

}  // namespace gyre::jobs
