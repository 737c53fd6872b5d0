#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/jobs/catalog/types.h"

namespace gyre::jobs::catalog {

class Store;

/// Which jobs to list. At most one of workspace, experiment and cluster.
struct JobFilter {
  std::optional<Id> workspace{};
  std::optional<Id> experiment{};
  std::optional<Id> cluster{};
  std::optional<ExecutionState> state{};
};

class Jobs {
 public:
  explicit Jobs(Store& store) : store_(store) {}

  /// The name must be free in its experiment, and neither experiment nor cluster being deleted. It is queued.
  Job create(const NewJob& job);
  std::optional<Job> find(Id experiment, std::string_view name);
  /// Error(kNotFound) when it does not exist.
  Job get(Id id);
  /// A page takes as long wherever in the list it stands.
  Page<Job> list(const JobFilter& filter, const PageRequest& request = {});
  /// Nothing where it does not exist.
  std::optional<Job> find(Id id);
  /// Queued, running or terminating, of all clusters, in the order of submission.
  std::vector<Job> unfinished();
  /// The same, one at a time: there may be very many. `visit` changes nothing in the catalog.
  void for_each_unfinished(const std::function<void(const Job&)>& visit);
  /// Being deleted, of all clusters.
  std::vector<Job> deleting();
  /// How many jobs there are in each state.
  std::map<ExecutionState, std::int64_t> count(const JobFilter& filter);

  /// Ends the job for good. One without an attempt fails at once; of the others the attempt is now to be ended. False,
  /// and no change, when it has finished or is being ended for good already.
  bool terminate(Id id, const Cause& cause);
  /// Queues a job again that has failed, with the retries of a new one. Its cluster must be there, and its secrets not
  /// be needed: they were deleted.
  void retry(Id id, const Cause& cause);
  /// It is to be deleted, and terminated where it has not finished.
  void start_deletion(Id id, const Cause& cause);
  /// Deletes all but the events of a job that is being deleted and has finished.
  void remove(Id id);

  /// How many jobs of this submitter are queued, counted up to `most`.
  std::int64_t queued_of(std::string_view submitter, std::int64_t most);
  /// Whether a job of the workspace came with this code.
  bool uses_code(Id workspace, std::string_view code);

  /// Whether a job of the workspace with this code has not finished, or has ended at `since` or later.
  bool needs_code(Id workspace, std::string_view code, TimeUs since);
  /// What jobs that have not finished came with.
  std::vector<CodeKey> code_of_unfinished();
  /// Their names.
  std::vector<std::string> unfinished_with_code(const CodeKey& code);
  std::optional<Job> find_by_uuid(std::string_view uuid);
  /// Of all of the cluster's that may run, or may be queued again by hand.
  std::set<std::string> uuids_of_unsuccessful(Id cluster);
  /// A queued job without an attempt cannot be run.
  void fail(Id id, const ResourceError& error);
  /// At most `most` that ended before `time`, and are not being deleted yet; the oldest first.
  std::vector<Job> ended_before(TimeUs time, int most);

  /// A remark in its events, without any change: "containerSettings is ignored on this cluster".
  void remark(Id id, const Cause& cause);
  /// Whether an event of the job has had this reason since then.
  bool has_event(Id id, std::string_view reason, TimeUs since);

 private:
  Store& store_;
};

}  // namespace gyre::jobs::catalog
