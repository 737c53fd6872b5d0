#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/catalog/types.h"
#include "gyre/jobs/resources/resources.h"
#include "gyre/jobs/scheduler/state.h"
#include "gyre/jobs/spec/cluster_spec.h"
#include "gyre/jobs/spec/job_spec.h"

// How the values of the interface stand in the catalog, and back. Pure.
namespace gyre::jobs::service {

/// A spec as the catalog keeps it: the text without values of secrets, and the whole text as a secret where there are
/// any.
struct KeptSpec {
  std::string text{};
  std::vector<catalog::Secret> secrets{};
};

KeptSpec kept(const spec::JobSpec& job);
KeptSpec kept(const spec::ClusterSpec& cluster);
/// The part of a cluster's spec that may change.
std::string kept_scale(const resources::Scale& scale);

/// From what kept() made. With `secrets` empty their values are empty texts. Error(kCorruptData) for a text that cannot
/// be read.
spec::JobSpec job_spec(const std::string& text, const std::vector<catalog::Secret>& secrets = {});
/// `scale`: of kept_scale(); it replaces that of the text. Error as job_spec().
spec::ClusterSpec cluster_spec(const std::string& text, const std::string& scale,
                               const std::vector<catalog::Secret>& secrets = {});

/// A spec in the catalog, or why it cannot be read: a version of Gyre wrote it that this one does not know, or the file
/// was damaged. Such a record is left alone; it must not stop what has nothing to do with it.
template <typename Spec>
struct StoredSpec {
  std::optional<Spec> spec{};
  std::string problem{};  ///< Where there is no spec.
};
StoredSpec<spec::JobSpec> stored_spec(const catalog::Job& job);
StoredSpec<spec::ClusterSpec> stored_spec(const catalog::Cluster& cluster);

/// Codes of the errors that name such records.
inline constexpr const char* kUnreadableJob = "StoredJobUnreadable";
inline constexpr const char* kUnreadableCluster = "StoredClusterUnreadable";
/// That of a job that was ended without its nodes.
inline constexpr const char* kLeftRunning = "JobLeftRunning";
/// Why something is not as it was before a backup was restored.
inline constexpr const char* kRestored = "restored";
/// That of a job whose code is not kept any more.
inline constexpr const char* kCodeNotFound = "CodeNotFound";
inline constexpr const char* kNoCode =
    "its uploaded code is not on this server (it was deleted, or the server was restored from a backup that does not "
    "have it); submit the job again with --code";

/// How many attempts more a job has after failures that are not its own, each kind counted by itself.
struct RetryLimits {
  int after_loss = 19;          ///< Of a node, or of the service for longer than the lease.
  int after_other_failure = 0;  ///< It could not be started, say, or a mount is missing.
};
/// `retries` of gyreSettings is for other failures; 0 is for losses too: the job must never run again.
RetryLimits retry_limits(const spec::JobSpec& job);
/// Before the next attempt of a job that has had so many that ended through no fault of its own: `first`, doubled with
/// each, up to `longest`.
std::chrono::milliseconds retry_pause(int earlier, std::chrono::milliseconds first, std::chrono::milliseconds longest);

/// Whether it came with values that are deleted when a job ends.
bool has_secrets(const spec::JobSpec& job);

resources::Event shown(const catalog::Event& event);

scheduler::Priority scheduled(spec::SchedulingPriority priority);
scheduler::NodeReadiness scheduled(resources::NodeState state);
std::variant<scheduler::ManualScale, scheduler::AutoScale> scheduled(const resources::Scale& scale);

}  // namespace gyre::jobs::service
