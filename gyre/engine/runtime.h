#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gyre/base/log.h"
#include "gyre/engine/engine.h"
#include "gyre/engine/explain.h"
#include "gyre/group/group.h"
#include "gyre/group/messages/point_to_point.h"

namespace gyre::engine {

struct RuntimeOptions {
  EngineOptions engine;
  group::GroupOptions group;
  std::string log_level = "warning";
  /// Not empty: all ranks measure the machine at the start, and rank 0 writes a report of the exchange there when it
  /// leaves the job; see explain.h. Equal on all ranks, but for the path.
  std::filesystem::path explain_file{};
};

/// The environment's settings: those of EngineOptions, GYRE_LOG_LEVEL, GYRE_START_TIMEOUT_SECONDS, GYRE_EXPLAIN_FILE;
/// HOROVOD_LOG_LEVEL and HOROVOD_START_TIMEOUT where ours are not set.
RuntimeOptions runtime_options_from_environment();

/// Everything that makes this process (or this thread, in tests) one rank of a job: its membership, its engine, its
/// logger. Several can live in one process. Thread-safe.
class Runtime {
 public:
  /// Joins the job that the launcher described in the environment. Error(kUnsupported) in one with parameter servers.
  /// `location`, `waits`: see EngineOptions.
  static std::unique_ptr<Runtime> start_from_environment(std::function<std::string()> location = {},
                                                         std::shared_ptr<internal::ProcessWaits> waits = {});

  /// `timeline`: see Engine.
  Runtime(std::shared_ptr<group::Group> group, const RuntimeOptions& options,
          std::optional<TimelineRows> timeline = {});
  ~Runtime();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  int local_rank() const { return group_->topology().local_rank(); }
  int local_size() const { return group_->topology().local_size(); }
  group::Group& group() { return *group_; }
  Engine& engine() { return *engine_; }
  const Logger& logger() const { return logger_; }

  /// Some of this runtime's ranks as a job of their own (a process set): own numbers, own engine, same links, memory
  /// and fate; see group::make_subgroup for `ranks`, `id` and what leaving means. Collective among `ranks` alone;
  /// returns when all of them have called it (within a minute). Shut it down before this runtime. What it does stands
  /// in this runtime's timeline, where rank 0 takes part in it, under `name` (empty: "set" and the id).
  std::unique_ptr<Runtime> subset(std::vector<int> ranks, std::uint64_t id, const std::string& name = "") const;

  /// Messages between two ranks, outside the engine's order, whose types are DataType's numbers. Collective, once;
  /// returns when the ranks of this host share memory for them. Destroy it before this runtime.
  std::unique_ptr<group::PointToPoint> open_messages() const;

  /// Leaves the job (a subset: only that) in good order. Idempotent; the destructor calls it.
  void shutdown();

 private:
  void write_exchange_report();

  RuntimeOptions options_;
  Logger logger_;
  std::filesystem::path explain_file_;  // Empty: nothing is to be written, or it has been.
  MachineRates rates_;
  std::shared_ptr<group::Group> group_;
  std::unique_ptr<Engine> engine_;
};

/// Runs `body` as `size` ranks on threads of this process; see group::run_in_process.
void run_ranks(int size, const std::function<void(Runtime&)>& body, const RuntimeOptions& options = {},
               std::vector<std::string> host_ids = {});

}  // namespace gyre::engine
