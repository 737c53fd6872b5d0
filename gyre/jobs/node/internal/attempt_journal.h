#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/node/internal/attempt_ends.h"
#include "gyre/jobs/node/internal/attempt_host.h"
#include "gyre/jobs/node/internal/attempt_task.h"

namespace gyre::jobs::node::internal {

/// A line of the node's log of a job, with the time, and without `secrets`.
std::string log_line(const std::string& sentence, const std::vector<std::string>& secrets);

/// All that is written down about an attempt by its process: its state, which the node program keeps, its notes, which
/// become the job's events, and the node's log of the job, which is for people. Not thread-safe.
class AttemptJournal {
 public:
  AttemptJournal(const AttemptTask& task, AttemptHost& host);

  const SavedAttempt& state() const { return state_; }
  const orders::WorkOrder& order() const { return state_.order; }
  /// The values that no log may show.
  const std::vector<std::string>& secrets() const { return secrets_; }

  /// Written down before they return. Error(kIo, kResourceExhausted).
  void take(Step step);
  void take_facts(const orders::NodeFacts& facts);
  void run_with(const std::vector<orders::NodeFacts>& all_facts);
  void remember_log_lengths(const std::vector<std::string>& paths);
  /// Does not throw: on a full disk the node program hears of the end all the same.
  void stop(const AttemptEnds& end);
  void add_left_behind(const std::string& what);

  void reach(orders::Phase phase);
  /// A sentence for the job's events and log; each once.
  void note(const std::string& sentence);
  /// A sentence for the job's log.
  void log(const std::string& sentence);
  /// From now on there is one, in this folder. Lines that were kept begin it.
  void open_log(const std::string& folder);

 private:
  void write_line(const std::string& line) const;

  const AttemptTask& task_;
  AttemptHost& host_;
  SavedAttempt state_;
  const std::vector<std::string> secrets_;
  orders::Phase phase_ = orders::Phase::kPreparing;
  std::string log_;  ///< Its path; empty: there is none yet.
};

}  // namespace gyre::jobs::node::internal
