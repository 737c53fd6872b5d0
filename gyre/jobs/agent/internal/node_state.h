#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/agent/node_folders.h"
#include "gyre/jobs/agent/node_report.h"
#include "gyre/jobs/agent/work_order.h"

namespace gyre::jobs::agent::internal {

/// The steps of an attempt on a node, each written down before it is taken.
enum class Step {
  kAccepted,   ///< Nothing has been done yet that could not be done again.
  kPreparing,  ///< The folders are made; setup and preparation have begun, or are about to.
  kPrepared,   ///< The facts are known.
  kRunning,    ///< The processes have been started, or are about to be.
  kStopped,    ///< They have ended, or never ran; the record says how it went; the node may not be clean yet.
};

/// What an agent has to know of its attempt to go on with it after a restart.
struct NodeState {
  WorkOrder order;
  Step step = Step::kAccepted;
  std::int64_t started_us = 0;       ///< Of CLOCK_REALTIME.
  double started_s = 0;              ///< Of CLOCK_BOOTTIME, which no one sets.
  std::string boot;                  ///< Of which boot.
  std::optional<NodeFacts> facts;    ///< From kPrepared on.
  std::vector<NodeFacts> all_facts;  ///< From kRunning on.
  std::optional<ExitRecord> record;  ///< From kStopped on.
  std::vector<std::string> memory;   ///< Names in /dev/shm that the job's user had before the job.
  std::vector<std::string> notes;
  std::map<std::string, std::uint64_t> log_lengths;  ///< By path: how long a log was before this attempt wrote to it.
};

/// Atomically; only our user may read it. Error(kIo, kResourceExhausted).
void save(const NodeState& state, const NodeFolders& folders);
/// Nothing when there is none. Error(kCorruptData).
std::optional<NodeState> load_state(const NodeFolders& folders);

/// Seconds of boot_clock_us().
double boot_time_s();

}  // namespace gyre::jobs::agent::internal
