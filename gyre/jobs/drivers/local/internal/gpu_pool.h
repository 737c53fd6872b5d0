#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gyre/jobs/drivers/local/internal/gpu_search.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers::local::internal {

/// The GPUs of this machine, and which attempts have them (ADR 124). What an attempt has is written to a file of its
/// own before it begins. What is const is thread-safe while nothing else is called, and share() and check() always.
class GpuPool {
 public:
  explicit GpuPool(FoundGpus found) : gpus_(std::move(found.names)), problem_(std::move(found.problem)) {}

  bool empty() const { return gpus_.empty(); }
  /// How many a job that does not ask for a number has on each node of the cluster.
  int share(const spec::ClusterSpec& cluster) const;
  /// Error(kInvalidArgument) for a job that asks for more than there are.
  void check(const spec::JobSpec& job) const;
  /// Of new orders, which are to begin in this order: why each cannot yet; empty: it can. None that needs GPUs
  /// overtakes another.
  std::vector<std::string> waits(const std::vector<orders::WorkOrder>& orders) const;

  /// Gives a new order its GPUs, and writes them to `file`; without any, changes nothing. Returns a sentence for the
  /// job's events, or nothing. Error(kResourceExhausted) while too few are free; Error(kIo).
  std::string give(orders::WorkOrder& order, const std::filesystem::path& file);
  /// An order of before has what `file` says. Without a file it may see all GPUs, and holds them.
  void take_up(orders::WorkOrder& order, const std::filesystem::path& file);
  /// The attempt has ended.
  void take_back(const std::string& attempt);

 private:
  using Names = std::vector<std::string>;

  int per_node(const orders::WorkOrder& order) const;
  Names free() const;
  std::string wait_for(std::size_t needed, std::size_t free) const;

  Names gpus_;
  std::string problem_;                ///< Why there are none.
  std::map<std::string, Names> held_;  ///< By attempt.
  std::set<std::string> see_all_;
};

}  // namespace gyre::jobs::drivers::local::internal
