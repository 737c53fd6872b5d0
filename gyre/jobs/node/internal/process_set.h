#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gyre/jobs/node/internal/attempt_journal.h"
#include "gyre/jobs/node/internal/attempt_task.h"
#include "gyre/jobs/node/internal/commands.h"
#include "gyre/jobs/node/internal/launch_specification.h"
#include "gyre/jobs/node/internal/log_allowance.h"
#include "gyre/jobs/node/internal/process_logs.h"
#include "gyre/jobs/node/launched_set.h"

namespace gyre::jobs::node::internal {

/// The sets of a job, by the names of their sockets.
inline constexpr std::array kSetsOfJob = {"env", "prep", "ranks", "shell"};

/// Where the output of a process goes.
struct LogFiles {
  std::string stdout_file;
  std::string stderr_file;
};

/// Kills what the set at `socket` still runs, and lets it go. A set that is not there is fine.
void end_set(const std::filesystem::path& socket);
/// Waits until the set, which has finished, has gone.
void release_set(const std::filesystem::path& socket);

/// One `gyre launch` of an attempt, from its start to its last record: what its processes write goes to their logs, and
/// commands to the attempt are carried out. For one thread.
class ProcessSet {
 public:
  /// How the processes ended.
  struct Ended {
    int exit_code = 0;
    bool stopped = false;    ///< We have asked them to, because the attempt must stop.
    bool main_done = false;  ///< All but the servers have succeeded.
    nlohmann::json record;   ///< The last one.
  };

  ProcessSet(const AttemptTask& task, AttemptJournal& journal, const Commands& commands, std::filesystem::path socket);

  /// Adds a process whose output goes to `logs`. A `server` never ends by itself: it is ended once all others have
  /// succeeded and the service says that nobody needs it any more.
  void add(Started process, const LogFiles& logs, bool server = false);
  std::vector<Started>& processes() { return processes_; }
  /// Its launcher, or one that its processes start, keeps their metrics in `file`, which counts with the logs.
  void count_metrics(std::filesystem::path file) { metrics_ = std::move(file); }
  /// Its launcher keeps a copy of this descriptor as long as it lives.
  void keep_open(int descriptor) { kept_open_.push_back(descriptor); }
  /// Of this node's part of what the logs of the job may have, that of its processes' output; 0: any number.
  std::uint64_t most_log_bytes() const;

  /// Starts the set, or finds the one that a process before us has started, and reads its records until it has
  /// finished. `specification` comes of processes(). `first_rank`: the first process's number in the records.
  /// `started` is called once the set is there.
  Ended run(const nlohmann::json& specification, int first_rank = 0, const std::function<void()>& started = {});

 private:
  using Streams = std::vector<std::array<std::unique_ptr<LogStream>, 2>>;

  /// Else `gyre launch` writes them, which neither hides secrets nor refuses links.
  bool writes_logs() const;
  bool has_servers() const;
  LaunchedSet start_or_find(const nlohmann::json& specification);
  Streams open_logs() const;
  void note_output(Streams& streams, const nlohmann::json& record);
  void note_end(const nlohmann::json& record, LaunchedSet& set);
  void finish_main(LaunchedSet& set);
  /// This node's part of what the job's logs may have.
  LogAllowance allowance_of_logs() const;
  void keep_within(LogAllowance& allowance);
  /// Asks the set to end, once, when the attempt must stop or nobody needs the servers any more.
  void obey(LaunchedSet& set);

  const AttemptTask& task_;
  AttemptJournal& journal_;
  const Commands& commands_;
  const std::filesystem::path socket_;
  std::vector<Started> processes_;
  std::vector<LogFiles> logs_;
  std::filesystem::path metrics_;
  std::vector<int> kept_open_;
  std::vector<bool> servers_;
  std::size_t first_rank_ = 0;
  std::size_t succeeded_ = 0;  ///< Of those that are no servers.
  bool stop_asked_ = false;
  bool kill_asked_ = false;
  bool main_done_ = false;
  bool log_failed_ = false;
};

}  // namespace gyre::jobs::node::internal
