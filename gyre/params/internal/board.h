#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/params/ledger.h"

namespace gyre::params::internal {

/// What workers meet for.
enum class Meeting : std::uint8_t {
  kMetrics = 0,
  kSettle = 1,
  kFirstParameters = 2,
  kBroadcast = 3,
};
inline constexpr std::uint8_t kMeetings = 4;
/// "worker 2 is at settle()": what comes behind "is".
std::string_view place_of(Meeting meeting);

/// Where workers meet: sums of a few numbers over the workers, in the order of the workers. Thread-safe.
///
/// In sync each step waits for all workers. There a worker that takes a step while another one, which has taken fewer,
/// waits at a meeting is Error(kMismatch) at once: neither could ever go on.
class Board {
 public:
  struct Sum {
    std::vector<int> workers;
    std::shared_ptr<const std::vector<double>> values;
  };

  explicit Board(int workers)
      : ledger_(workers, 1, {}), given_(static_cast<std::size_t>(workers)), steps_(static_cast<std::size_t>(workers)) {}

  /// Each step waits for all workers. Before the first one.
  void require_equal_steps();
  bool requires_equal_steps();
  /// The worker takes its step `step`.
  void begin_step(int worker, std::uint64_t step);

  /// The sum and the workers that get it, when all have given their values. Error(kMismatch) where their number or the
  /// meeting differs.
  std::optional<Sum> give(int worker, Meeting meeting, std::vector<double> values);
  /// The sum that the other workers were waiting for, if any. See Ledger.
  std::optional<Sum> leave(int worker);
  std::optional<Sum> lose(int worker);

 private:
  struct Given {
    Meeting meeting = Meeting::kMetrics;
    std::vector<double> values;
  };

  std::optional<Sum> sum_of(const std::vector<Ledger::Decision>& decisions) GYRE_REQUIRES(mutex_);
  void check_agreement(int first, int other) const GYRE_REQUIRES(mutex_);
  void check_steps(int meeting, int stepping) const GYRE_REQUIRES(mutex_);

  Mutex mutex_;
  Ledger ledger_ GYRE_GUARDED_BY(mutex_);
  std::vector<std::optional<Given>> given_ GYRE_GUARDED_BY(mutex_);  // Nothing of workers that are not here.
  std::vector<std::uint64_t> steps_ GYRE_GUARDED_BY(mutex_);         // That they have begun.
  bool equal_steps_ GYRE_GUARDED_BY(mutex_) = false;
};

}  // namespace gyre::params::internal
