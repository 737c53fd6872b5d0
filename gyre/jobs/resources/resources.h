#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gyre/jobs/resources/states.h"
#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

namespace gyre::jobs::resources {

// The resources of the job service as values, with the words of Batch AI's REST: what the service answers, what its
// clients read, and in which the command line thinks. Names are 1 to 64 letters, digits, '-' and '_'.

/// Microseconds since 1970, by the service's wall clock, which may jump. Order is told by sequence numbers alone.
using TimeUs = std::int64_t;

struct User {
  std::string name{};
  bool is_administrator = false;  ///< May use every workspace, make workspaces and users.
  std::string account{};          ///< Of the machine; empty: the one that has the user's name.
  bool is_trusted = false;        ///< May submit where all jobs run as one account.
};

/// What is to change of a user; the rest stays.
struct UserChange {
  std::optional<std::string> account{};
  std::optional<bool> is_trusted{};
};

/// A part of a list: what stands behind `after` (empty: from the beginning), which is a Page's `next`.
struct PageRequest {
  std::string after{};
  int limit = 100;  ///< 1 to kLongestPage.
  bool newest_first = false;
};
inline constexpr int kLongestPage = 1'000;

template <typename Item>
struct Page {
  std::vector<Item> items{};
  std::optional<std::string> next{};  ///< Letters and digits; missing on the last page.
};

template <typename Item>
struct Created {
  Item item{};
  bool is_new = false;  ///< False: it was there already, alike.
};

struct NewWorkspace {
  std::string name{};
  std::string location{};
};

/// How many cores the running jobs of a workspace may hold at once, on dedicated and on low-priority nodes. Missing:
/// any number.
struct Quotas {
  std::optional<std::int64_t> cores{};
  std::optional<std::int64_t> low_priority_cores{};

  bool operator==(const Quotas&) const = default;
};

struct Workspace {
  std::string name{};
  std::string location{};
  TimeUs creation_time = 0;
  Quotas quotas{};
};

struct Usage {
  std::string name{};  ///< "cores", "lowPriorityCores", …
  std::string unit = "Count";
  std::int64_t current_value = 0;
  std::optional<std::int64_t> limit{};  ///< Missing: none.
};

/// BatchAIError: what went wrong inside a cluster or a job.
struct ResourceError {
  std::string code{};  ///< One of error_code, or the service's own word.
  std::string message{};
  std::map<std::string, std::string> details{};

  bool operator==(const ResourceError&) const = default;
};

/// The codes of Batch AI's failure records, and two of ours.
namespace error_code {
inline constexpr const char* kJobFailed = "JobFailed";
inline constexpr const char* kPreparationFailed = "JobPreparationFailed";
inline constexpr const char* kInternal = "InternalError";
/// A place for mounts, logs or outputs that the node cannot use.
inline constexpr const char* kUnusablePath = "UnusablePath";
/// The image of the job's container is not to be had, or not for this machine.
inline constexpr const char* kContainer = "ContainerNotStarted";
}  // namespace error_code

struct ClusterName {
  std::string workspace{};
  std::string cluster{};
};

using Scale = std::variant<spec::ManualScale, spec::AutoScale>;

struct NodeStateCounts {
  int idle = 0;
  int running = 0;
  int preparing = 0;
  int unusable = 0;
  int leaving = 0;
};

struct Cluster {
  ClusterName name{};
  spec::ClusterSpec spec{};  ///< With the scale that holds now; secrets are left out of every answer.
  TimeUs creation_time = 0;
  ProvisioningState provisioning_state = ProvisioningState::kCreating;
  TimeUs provisioning_state_transition_time = 0;
  AllocationState allocation_state = AllocationState::kSteady;
  TimeUs allocation_state_transition_time = 0;
  int current_node_count = 0;
  NodeStateCounts node_state_counts{};
  std::vector<ResourceError> errors{};
};

struct Node {
  std::string name{};
  NodeState state = NodeState::kAllocating;
  TimeUs state_transition_time = 0;
  std::string address{};             ///< Empty: not known yet.
  std::optional<int> gpus{};         ///< That a job has there if it does not ask for a number. Missing: unknown.
  std::optional<std::string> job{};  ///< "EXPERIMENT/JOB" that it was given to.
  std::string problem{};             ///< Why it is unusable or lost.
};

struct ExperimentName {
  std::string workspace{};
  std::string experiment{};
};

struct Experiment {
  ExperimentName name{};
  TimeUs creation_time = 0;
  ProvisioningState provisioning_state = ProvisioningState::kSucceeded;
  TimeUs provisioning_state_transition_time = 0;
};

struct JobName {
  std::string workspace{};
  std::string experiment{};
  std::string job{};

  bool operator==(const JobName&) const = default;
};

struct JobFilter {
  std::optional<std::string> experiment{};
  std::optional<std::string> cluster{};
  std::optional<ExecutionState> state{};
};

struct Submission {
  spec::JobSpec spec{};
  ClusterName cluster{};  ///< What spec.cluster_id names; may be of another workspace, which the sender may use.
  std::string code{};     ///< SHA-256 of an archive that the job's nodes unpack for it; empty: none.
  User sender{};
};

/// Of the latest attempt.
struct ExecutionInfo {
  std::optional<TimeUs> start_time{};
  std::optional<TimeUs> end_time{};
  std::optional<int> exit_code{};
  std::vector<ResourceError> errors{};  ///< One where it failed.
};

struct Job {
  JobName name{};
  std::string uuid{};
  spec::JobSpec spec{};
  TimeUs creation_time = 0;
  ProvisioningState provisioning_state = ProvisioningState::kSucceeded;
  TimeUs provisioning_state_transition_time = 0;
  ExecutionState execution_state = ExecutionState::kQueued;
  TimeUs execution_state_transition_time = 0;
  ExecutionInfo execution_info{};
  int attempts = 0;                    ///< Started so far: above one after a requeue.
  std::optional<TimeUs> retry_time{};  ///< Before which a job that was queued again does not begin.
  std::string submitter{};             ///< A user's name.
  std::string account{};               ///< As which it runs; empty: the one that all jobs of the service have.
  std::string job_output_directory_path_segment{};
};

/// Sentences for people, and one word for programs.
struct Explanation {
  std::string reason{};                 ///< "waitingForNodes", "quota", "running", "failed", …
  std::string message{};                ///< Why.
  std::vector<std::string> remedies{};  ///< What would change it.
  std::optional<TimeUs> expected_start{};
};

/// Something that happened. Never holds the value of a secret.
struct Event {
  std::int64_t sequence = 0;  ///< Grows; numbers may be left out.
  TimeUs time = 0;
  std::string subject{};  ///< "job", "node", "cluster", …
  std::string name{};     ///< Of the subject.
  std::optional<int> attempt{};
  std::string from{};  ///< States; empty where there was or is none.
  std::string to{};
  std::string reason{};
  std::string message{};
};

/// Whose events: the workspace's with all that is in it, or one cluster's, or one job's.
struct EventScope {
  std::string workspace{};
  std::string cluster{};     ///< Empty: not one cluster's.
  std::string experiment{};  ///< With `job`; empty: not one job's.
  std::string job{};
};

/// A directory of a job: `relative` below `root`. The root is the service's own choice or a mounted volume, and links
/// in its path are followed; the rest may have been in the hands of a job, so a link in it is refused.
struct OutputDirectory {
  std::string id{};
  std::filesystem::path root{};      ///< Absolute, on the service's host.
  std::filesystem::path relative{};  ///< "…/jobs/j/UUID/stdouterr"; not empty.
};

}  // namespace gyre::jobs::resources
