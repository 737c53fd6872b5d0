#pragma once

#include <optional>
#include <set>
#include <vector>

#include "gyre/jobs/scheduler/decide.h"
#include "gyre/jobs/scheduler/internal/ledger.h"
#include "gyre/jobs/scheduler/internal/reservation.h"

namespace gyre::jobs::scheduler {

/// A waiting job that stays where it is.
struct Blocked {
  const Job* job = nullptr;
  Demand demand{};
  bool fits_now = false;         ///< Nodes and quota would do; only others stand in its way.
  bool is_head = false;          ///< Nobody ahead of it waits for nodes or quota that it needs.
  Reservation reservation{};     ///< Of a head.
  const Job* delayed = nullptr;  ///< The head that starting this job now could delay, where it fits.
};

/// Which of the waiting jobs a Pass looks at.
enum class Extent {
  kDecisions,  ///< Those that may have an effect on what is decided.
  kAll,        ///< All of them, so that blocked() has each that stays.
};

/// One run over a State, and a Line instead of its `waiting`. Both must outlive it.
class Pass {
 public:
  Pass(const State& state, const Line& line, Extent extent);

  const std::vector<Decision>& decisions() const { return decisions_; }
  /// In the order of the line.
  const std::vector<Blocked>& blocked() const { return blocked_; }
  const Ledger& ledger() const { return ledger_; }

 private:
  void look_after_running_jobs();
  void end_if_necessary(const RunningJob& running, const std::set<NodeId>& alive);
  void go_along_line(const Line& line, Extent extent);
  /// Whether none of the jobs of a lane can have an effect any more: none fits, and all would stand behind others.
  bool is_done(const Line::Key& key, const Lane& lane) const;
  void place(const Job& job);
  bool stands_behind(const Demand& demand) const;
  const Job* delayed_head(const Demand& demand, Time end) const;
  void start(const Job& job, const Demand& demand, bool backfill);
  void keep_waiting(const Job& job, const Demand& demand, const Job* delayed, bool behind);

  const State& state_;
  Ledger ledger_;
  std::vector<Decision> decisions_{};
  std::vector<Blocked> blocked_{};
  std::vector<std::size_t> heads_{};  ///< Indices into blocked_.
  std::set<ClusterId> clusters_waited_for_;
  std::set<std::size_t> quotas_waited_for_;
};

/// Whether the job could start if everything in the State were idle and unused.
bool can_ever_start(const Ledger& ledger, const Job& job);

}  // namespace gyre::jobs::scheduler
