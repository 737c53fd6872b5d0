#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/resources/resources.h"

namespace gyre::jobs::catalog {

/// Numbers are never used again, also after their owner has been deleted.
using Id = std::int64_t;
using resources::AllocationState;
using resources::AttemptState;
using resources::EndIntent;
using resources::ExecutionState;
using resources::NodeState;
using resources::ProvisioningState;
using resources::Quotas;
using resources::ResourceError;
using resources::TimeUs;

/// A part of a list, in the order of the numbers.
struct PageRequest {
  Id after = 0;     ///< Continue behind this one; 0: from the beginning.
  int limit = 100;  ///< 1 to kLongestPage.
  bool newest_first = false;
};
inline constexpr int kLongestPage = 1000;

template <typename Item>
struct Page {
  std::vector<Item> items{};
  std::optional<Id> next{};  ///< PageRequest::after of the next page, where there is one.
};

struct Workspace {
  Id id = 0;
  std::string name{};
  std::string location{};
  TimeUs created = 0;
  Quotas quotas{};
};

struct Experiment {
  Id id = 0;
  Id workspace = 0;
  std::string name{};
  TimeUs created = 0;
};

/// A value that only node programs get to see.
struct Secret {
  std::string name{};
  std::string value{};
};

struct NewCluster {
  Id workspace = 0;
  std::string name{};
  std::string spec{};   ///< Without values of secrets; kept as it is.
  std::string scale{};  ///< The part of the spec that may change.
  std::vector<Secret> secrets{};
};

struct Cluster {
  Id id = 0;
  std::string uuid{};  ///< Keeps the files of a deleted cluster of the same name apart.
  Id workspace = 0;
  std::string name{};
  std::string spec{};
  std::string scale{};
  TimeUs created = 0;
  ProvisioningState provisioning_state = ProvisioningState::kCreating;
  TimeUs provisioning_changed = 0;
  AllocationState allocation_state = AllocationState::kSteady;
  TimeUs allocation_changed = 0;
};

struct Node {
  Id id = 0;
  Id cluster = 0;
  std::string name{};
  NodeState state = NodeState::kAllocating;
  TimeUs state_changed = 0;
  std::optional<std::string> attempt{};  ///< The attempt that it was given to and that has not ended.
  std::string problem{};                 ///< Why it is unusable or lost.
};

struct NewJob {
  Id experiment = 0;
  Id cluster = 0;
  std::string name{};
  std::string spec{};  ///< Without values of secrets; kept as it is.
  std::vector<Secret> secrets{};
  std::string code{};       ///< The SHA-256 of an archive, or empty.
  std::string submitter{};  ///< A user's name.
  std::string account{};    ///< As which it runs, by name, on every node; empty: as the service says.
};

struct Job {
  Id id = 0;           ///< The order of submission.
  std::string uuid{};  ///< Keeps the files of a deleted job of the same name apart.
  Id workspace = 0;    ///< Of its experiment.
  Id experiment = 0;
  Id cluster = 0;  ///< May have been deleted since; Clusters::get() still knows it.
  std::string name{};
  std::string spec{};
  TimeUs created = 0;
  ProvisioningState provisioning_state = ProvisioningState::kSucceeded;
  TimeUs provisioning_changed = 0;
  ExecutionState execution_state = ExecutionState::kQueued;
  TimeUs execution_changed = 0;
  int attempts = 0;
  int attempts_before = 0;        ///< Of them, those before it was last queued again by hand.
  int losses = 0;                 ///< Since then, attempts that ended with a node or because the service was away,
  int retries = 0;                ///< and those that ended otherwise through no fault of the job.
  std::optional<TimeUs> retry{};  ///< Its next attempt begins no earlier.
  std::optional<TimeUs> start{};  ///< Of the latest attempt that started.
  std::optional<TimeUs> end{};
  std::optional<int> exit_code{};
  std::optional<ResourceError> error{};
  std::string code{};       ///< The SHA-256 of an archive, or empty.
  std::string submitter{};  ///< Empty: it was submitted before submitters were recorded.
  std::string account{};    ///< As NewJob's.
};

/// Microseconds since the machine started, sleep included, and in which of its lives. Two of the same boot tell how
/// much time lies between them, whatever was done to the wall clock.
struct BootTime {
  std::string boot{};
  std::int64_t time_us = 0;
};

struct AttemptNode {
  Id id = 0;
  std::string name{};
};

/// An archive of code that users have uploaded.
struct CodeKey {
  Id workspace = 0;
  std::string sha256{};
  bool operator==(const CodeKey&) const = default;
};

/// That a catalog is the copy which a backup has made.
struct BackupMark {
  TimeUs made = 0;
  std::string view{};         ///< view_of_processes() of whoever made it (base/process_stat.h).
  std::int64_t lease_ms = 0;  ///< Of the service that had the catalog.
};

struct Attempt {
  std::string id{};  ///< "JOB UUID-NUMBER": under this name drivers and node programs know it.
  Id job = 0;
  int number = 0;  ///< From 1.
  AttemptState state = AttemptState::kPlanned;
  EndIntent end_intent = EndIntent::kNone;
  TimeUs planned = 0;
  BootTime planned_boot{};  ///< The same moment by a clock that nobody sets.
  std::optional<TimeUs> started{};
  std::optional<TimeUs> ended{};
  std::optional<int> exit_code{};
  std::vector<AttemptNode> nodes{};  ///< In the order of their ranks; a node may be gone by now.
};

/// Something that happened. Never holds the value of a secret.
struct Event {
  Id sequence = 0;
  TimeUs time = 0;
  /// "workspace", "experiment", "cluster", "allocation", "node", "job", "jobProvisioning", "attempt" or "user".
  std::string subject{};
  std::string name{};  ///< Of the subject.
  std::optional<Id> workspace{};
  std::optional<Id> cluster{};
  std::optional<Id> job{};
  std::optional<int> attempt{};
  std::optional<Id> node{};
  std::string from{};  ///< Empty: it is new.
  std::string to{};    ///< Empty: it is gone, or this is a remark.
  std::string reason{};
  std::string message{};
};

/// Why something happens, for its event.
struct Cause {
  std::string reason{};  ///< One word for scripts: "nodeLost".
  std::string message{};
};

struct User {
  Id id = 0;
  std::string name{};
  bool is_administrator = false;  ///< May use every workspace.
  TimeUs created = 0;
  std::string account{};    ///< Of the machine; empty: the one that has the user's name.
  bool is_trusted = false;  ///< May submit where all jobs run as one account.

  const std::string& account_name() const { return account.empty() ? name : account; }
};

}  // namespace gyre::jobs::catalog
