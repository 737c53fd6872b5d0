#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"

namespace gyre::launch {

struct RankFailure {
  int rank;
  ExitStatus status;
  SteadyClock::time_point when;
};

/// What a rank tells its launcher.
struct RankReport {
  enum class Word {
    kEnds,       ///< "I am about to end"; said before any other rank can notice.
    kFailed,     ///< "Our group failed because of that rank", said before the group hears of it.
    kLeft,       ///< "That rank was the first to leave our group in good order", likewise.
    kMayBeLost,  ///< "Our group goes on when that rank dies", said before it may rely on it.
  };
  Word word;
  int rank;
};

constexpr std::size_t kLongestReportBytes = 64;

/// From a line such as "ends 2" (see docs/guide/launchers.md); nothing if it is none, or not about a rank of `ranks`.
std::optional<RankReport> parse_report(std::string_view line, int ranks);

/// Decides which rank failed first, from the failures in the order in which they were seen.
///
/// When a rank dies, the others usually fail *because* of it within milliseconds (a lost connection: exit code 1 or an
/// uncaught exception's SIGABRT), and may be seen first. So a failure that may be such a consequence stays open for
/// kSettleTime, and stronger evidence that arrives within it takes its place. Evidence, from strong to weak:
///   1. killed by any other signal (SIGKILL, SIGSEGV, …): nobody dies of that because a peer is gone;
///   2. the suspect of the ranks' own reports;
///   3. killed by SIGABRT or SIGPIPE;
///   4. exited with a code other than 0.
/// A shell's 128 + signal counts as that signal. Among equals the earliest counts. The strongest is final at once.
///
/// The suspect: who fails because of another announces its end after the other has been heard of. So it is the rank
/// that announced its end first, unless a group had failed because of some rank before that (a crash announces
/// nothing). Without either it is who left a group first. A rank that ended well is none. Of several groups the latest
/// report counts: the ranks may have met again in between. The suspect may have more to clean up than those that fail
/// because of it (Python and torch on a busy machine), and a rank that is being killed may take its time to be gone
/// while the others have long seen its connections end: they are waited for, up to kLongestSettleTime.
///
/// What counts is the order in which the ends are told, not how late on a busy machine: until the caller acts on
/// final_at(), everything that it adds is evidence.
/// The other ranks are left alone until the failure is final: what they do after being told to end proves nothing.
class FirstFailure {
 public:
  static constexpr std::chrono::milliseconds kSettleTime{150};
  static constexpr std::chrono::milliseconds kLongestSettleTime{8'000};
  /// For what other ranks still write about a failure: torch's watchdogs hear of each other's within a second.
  static constexpr std::chrono::milliseconds kTimeForWords{3'000};

  /// Precondition: `failure.status` is not a success; times do not decrease.
  void add(const RankFailure& failure);

  /// In the order in which they were told. Of the same word about the same rank only the latest is kept.
  void hear(const RankReport& report);

  /// That rank has ended with success: it was not the one, whatever is told of it.
  void ended_well(int rank) { ended_well_.insert(rank); }

  /// The ranks that had announced their end, or left their group, before the first failure was seen and before `cause`
  /// announced its own. (Their processes may end later than those of ranks that fail because of that: Python and torch
  /// take their time.)
  std::vector<int> left_before(int cause) const;

  /// Whether a rank whose end has not been added yet is known to be dying.
  void somebody_is_dying(bool dying) { dying_ = dying; }

  /// Whether what ranks may still write tells which was the cause; they are waited for, up to kTimeForWords.
  void words_are_awaited(bool awaited) { words_awaited_ = awaited; }

  /// The failure, once nothing that may still come can change it.
  std::optional<RankFailure> final_at(SteadyClock::time_point now) const;

  /// The best known now; for when waiting is over for another reason (everybody has ended).
  std::optional<RankFailure> best() const;

  /// When final_at() will answer at the latest; nothing before the first failure.
  std::optional<SteadyClock::time_point> settles_at() const;

 private:
  std::optional<int> suspect() const;
  int evidence(const RankFailure& failure) const;

  std::vector<RankFailure> failures_;
  std::vector<RankReport> reports_;
  std::set<int> ended_well_;
  std::vector<int> left_;  // Before the first failure, in this order.
  bool dying_ = false;
  bool words_awaited_ = false;
};

}  // namespace gyre::launch
