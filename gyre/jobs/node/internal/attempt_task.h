#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gyre/jobs/node/expansion.h"
#include "gyre/jobs/node/internal/saved_attempt.h"

namespace gyre::jobs::node::internal {

// What a node program and the process of an attempt say to each other, in lines of JSON over the one descriptor that
// the process inherits. The process runs as the job's account, which may trace or kill it: all that it says counts as
// said by the job. It is parsed within limits, and decides about nothing but its own attempt (ADR 87).
namespace attempt_line {
constexpr const char* kTask = "task";        ///< node program -> process, first: AttemptTask
constexpr const char* kRun = "run";          ///< node program -> process: the facts of all nodes
constexpr const char* kFinish = "finish";    ///< node program -> process: true
constexpr const char* kStop = "stop";        ///< node program -> process: {"reason", "grace_seconds"}
constexpr const char* kCommand = "command";  ///< node program -> process, with a descriptor: CommandStart's rank, or -1
constexpr const char* kSaved = "saved";      ///< node program -> process: why progress was not written down; "": it was
constexpr const char* kCode = "code";        ///< with it: the number of the ErrorCode, where it was not
constexpr const char* kSave = "save";      ///< process -> node program: progress_of(), to be on disk before the answer
constexpr const char* kReport = "report";  ///< process -> node program: {"phase", "notes"}
constexpr const char* kLog = "log";        ///< process -> node program: a line that has no log yet
}  // namespace attempt_line

/// Of a line to the process: a task has the whole order in it.
constexpr std::size_t kLongestOrderLine = std::size_t{64} << 20;
/// Of a line to the node program.
constexpr std::size_t kLongestProgressLine = std::size_t{4} << 20;
/// Of lines that have no log yet.
constexpr std::size_t kMostKeptLines = 1'000;
constexpr std::size_t kLongestKeptLine = std::size_t{64} << 10;

/// What the process is to do, and all that it knows.
struct AttemptTask {
  enum class Kind {
    kSetup,  ///< The cluster's setup task, as the node program's own user: it is the administrators'.
    kJob,    ///< Everything else, as the job's account.
  };
  Kind kind = Kind::kJob;
  std::filesystem::path root;  ///< The node's own folder.
  std::string gyre_program;
  Variables base;  ///< The environment beneath that of jobs.
  std::chrono::seconds grace{5};
  bool in_container = false;  ///< The process runs in the job's container, whose environment is beneath that of jobs.
  bool own_account = false;   ///< Only jobs run as this account, so that all it leaves is the job's.
  bool has_places = true;     ///< Folders and mounts are there; else only the end is left to do.
  bool links_on_mounts = false;         ///< The mounts are symbolic links themselves.
  int code_descriptor = -1;             ///< Of the archive of the job's code, open; negative: there is none.
  std::uint64_t environment_bytes = 0;  ///< As NodeOptions has it.
  std::vector<std::string> lines;       ///< For the job's log on the node, from before there was one.
  SavedAttempt state;
};

nlohmann::json to_json(const AttemptTask& task);
/// Error(kCorruptData).
AttemptTask attempt_task_from_json(const nlohmann::json& json);

/// An order for the process of the job: without what only the cluster's administrators may know.
orders::WorkOrder without_cluster_secrets(orders::WorkOrder order);

}  // namespace gyre::jobs::node::internal
