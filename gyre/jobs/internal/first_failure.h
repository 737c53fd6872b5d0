#pragma once

#include <chrono>
#include <optional>
#include <set>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"

namespace gyre::jobs {

struct RankFailure {
  int rank;
  ExitStatus status;
  SteadyClock::time_point when;
};

/// Decides which rank failed first, from the failures in the order in which they were seen.
///
/// When a rank dies, the others usually fail *because* of it within milliseconds (a lost connection: exit code 1 or an
/// uncaught exception's SIGABRT), and may be seen first. So a failure that may be such a consequence stays open for
/// kSettleTime, and stronger evidence that arrives within it takes its place. Evidence, from strong to weak:
///   1. killed by any other signal (SIGKILL, SIGSEGV, …): nobody dies of that because a peer is gone;
///   2. the ranks themselves agreed that their group failed because of this one, or that it left them first;
///   3. killed by SIGABRT or SIGPIPE;
///   4. exited with a code other than 0.
/// A shell's 128 + signal counts as that signal. Among equals the earliest counts. The strongest is final at once. A
/// rank on which the others agreed may have more to clean up than they (Python and torch on a busy machine): it has
/// kBlamedSettleTime to end.
/// A rank that is being killed may take its time to be gone, while the others have long seen its connections end: as
/// long as one is known to be dying, that long it is waited for, up to kDyingSettleTime.
/// What counts is the order in which the ends are told, not how late on a busy machine: until the caller acts on
/// final_at(), everything that it adds is evidence.
/// The other ranks are left alone until the failure is final: what they do after being told to end proves nothing.
class FirstFailure {
 public:
  static constexpr std::chrono::milliseconds kSettleTime{150};
  static constexpr std::chrono::milliseconds kBlamedSettleTime{4'000};
  static constexpr std::chrono::milliseconds kDyingSettleTime{8'000};

  /// Precondition: `failure.status` is not a success; times do not decrease.
  void add(const RankFailure& failure);

  /// The ranks' own account; a later one takes the place of an earlier (they may have met again in between).
  void blame(int rank) { blamed_ = rank; }

  /// That rank has ended with success: it was not the one, whoever blames it.
  void ended_well(int rank) { ended_well_.insert(rank); }

  /// Whether a rank whose end has not been added yet is known to be dying.
  void somebody_is_dying(bool dying) { dying_ = dying; }

  /// The failure, once nothing that may still come can change it.
  std::optional<RankFailure> final_at(SteadyClock::time_point now) const;

  /// The best known now; for when waiting is over for another reason (everybody has ended).
  const std::optional<RankFailure>& best() const { return best_; }

  /// When final_at() will answer at the latest; nothing before the first failure.
  std::optional<SteadyClock::time_point> settles_at() const;

 private:
  int evidence(const RankFailure& failure) const;

  std::optional<RankFailure> best_;
  SteadyClock::time_point first_seen_;
  std::optional<int> blamed_;
  std::set<int> ended_well_;
  bool dying_ = false;
};

}  // namespace gyre::jobs
