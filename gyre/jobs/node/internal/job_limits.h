#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gyre/jobs/orders/node_report.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::node::internal {

/// What a job may use of a node: cpusPerNode and memoryPerNode.
struct LimitsWanted {
  std::optional<int> cores{};
  std::optional<std::uint64_t> memory_bytes{};
};
LimitsWanted limits_of(const spec::JobSpec& job);

/// Those of these limits that somebody around this process, such as an engine, has not set already: a sentence about
/// each, which says why it is not enforced. Pure.
std::vector<std::string> not_enforced(const LimitsWanted& wanted, std::optional<int> cores_around,
                                      std::optional<std::uint64_t> memory_around, const std::string& why);

/// What the kernel has killed for want of memory, in an attempt that may have failed with `error`. Pure.
std::string words_about_kills(const orders::WorkOrder& order, const std::optional<resources::ResourceError>& error,
                              std::int64_t kills);

/// Says in the error of an attempt why it may have failed: the kernel has killed so many of its processes. One that
/// failed because Gyre's own processes in it were killed so has failed by itself, as it would again. Pure.
void blame_kills(const orders::WorkOrder& order, orders::ExitRecord& record, std::int64_t kills);

/// Removes the cgroups of this node's attempts but that of `spared`; those whose processes cannot be killed stay.
/// `root`: the node's own folder.
void remove_limits(const std::filesystem::path& root, const std::string& spared = "");

/// The cgroups that limit what a job uses of one node, where it runs in no container. Those that a node program before
/// this one has made are found by their names.
class JobLimits {
 public:
  /// `root`: the node's own folder. `order` must outlive this object.
  JobLimits(const std::filesystem::path& root, const orders::WorkOrder& order);

  /// Makes them; removes those of other attempts on the node. Returns a sentence for each limit that is not enforced.
  std::vector<std::string> make();
  /// The folders that the job's processes must enter.
  std::vector<std::string> cgroups() const;
  /// How many processes the kernel has killed because of the limit of memory.
  std::int64_t kills() const;
  /// Error(kTimeout).
  void remove();

 private:
  const std::filesystem::path root_;
  const orders::WorkOrder& order_;
  const LimitsWanted wanted_;
  const std::string prefix_;  ///< Of this node's cgroups.
  std::filesystem::path memory_;
  std::filesystem::path cores_;
};

}  // namespace gyre::jobs::node::internal
