#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gyre/base/file.h"
#include "gyre/jobs/containers/container_runtime.h"
#include "gyre/jobs/node/node_job.h"

namespace gyre::jobs::node::internal {

/// Whether the order's job runs in a container of its own. Pure.
bool runs_in_container(const orders::WorkOrder& order);

/// Where a process of the attempt enters a container.
struct ContainerDoor {
  std::string program;  ///< Of ours, on this machine.
  std::filesystem::path socket;
};

/// The container of one attempt on one node (ADR 130). What it throws is for the job's user. Not thread-safe.
class AttemptContainer {
 public:
  /// `options` and `order` must outlive this object.
  AttemptContainer(const NodeOptions& options, const orders::WorkOrder& order);

  /// The attempt has only just come: nothing of it is there, and no program need be asked.
  void expect_none() { can_be_there_ = false; }
  /// Fetches the image and starts the container, after what is left of other attempts on this node was removed. The
  /// attempt's places must be there. `code`: the archive of the job's code, open, or none; an image may be built of it.
  /// `say` gets sentences for the job's events, `log` lines for its log. AttemptEnds, Error.
  void start(const UniqueFd& code, const containers::Interruption& interruption,
             const std::function<void(const std::string&)>& say, const std::function<void(const std::string&)>& log);
  bool runs();
  /// Asks the kernel how many processes it has killed because of the limit of memory. While the container runs, or just
  /// after its end: its runtime removes the count with it.
  void count_kills();
  /// How many there were when they were counted last.
  std::int64_t kills() const { return kills_; }
  /// With all that is in it. Error(kIo).
  void remove();
  ContainerDoor door() const;

 private:
  containers::ContainerRuntime& runtime();
  /// Whether this machine can have started it.
  bool can_be();
  containers::Image image(const UniqueFd& code, const containers::Interruption& interruption,
                          const std::function<void(const std::string&)>& say,
                          const std::function<void(const std::string&)>& log);
  containers::Container description(const containers::Image& image) const;
  std::vector<containers::BindMount> places() const;
  std::string node_label() const;
  /// Notes where the kernel counts what it kills in the container of this first process.
  void find_count(pid_t process);
  /// A sentence for each limit that the container of this first process lacks.
  std::vector<std::string> missing_limits(pid_t process) const;

  const NodeOptions& options_;
  const orders::WorkOrder& order_;
  const NodeFolders folders_;
  const std::string name_;
  std::unique_ptr<containers::ContainerRuntime> runtime_;
  bool can_be_there_ = true;
  std::filesystem::path memory_cgroup_;  ///< Of the container; empty: it was not found.
  std::int64_t kills_ = 0;
};

}  // namespace gyre::jobs::node::internal
