#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/process.h"
#include "gyre/base/secret_key.h"
#include "gyre/launch/host.h"

namespace gyre::launch {

/// This launcher's share of a job over several hosts, where each host has a launcher of its own.
struct HostPart {
  int node = 0;                  ///< Which of the hosts, from 0 …
  int nodes = 1;                 ///< … of how many.
  std::vector<int> ranks = {0};  ///< The numbers of our ranks in the job, ascending.
  int size = 1;                  ///< Ranks of all hosts.
  std::string rendezvous;        ///< "tcp:HOST:PORT", where the rank that hosts the rendezvous listens.
  std::optional<SecretKey> key;  ///< The job's; empty where GYRE_KEY_FILE in `environment` names a file.
};

enum class Stream : int { kStdout = 0, kStderr = 1 };
constexpr std::size_t kStreams = 2;

/// One process of a RankSet.
struct RankSpec {
  std::vector<std::string> command;      ///< The program and its arguments; not empty.
  std::vector<std::string> environment;  ///< "NAME=VALUE"; Gyre's own variables, and torchrun's, are added.
  std::string folder;                    ///< Where it starts; empty: where we are.
  std::string role = "default";          ///< ROLE_NAME.
  std::optional<int> index;              ///< ROLE_RANK, among the ranks of its role; unset: its rank.
  std::optional<int> role_size;          ///< ROLE_WORLD_SIZE; unset: the number of workers.
  int stdin_fd = -1;                     ///< Its stdin; negative: that is empty.
  int stdout_fd = -1;                    ///< A file or pipe that gets its stdout directly; negative: RankEvents does.
  int stderr_fd = -1;                    ///< Likewise.
  std::optional<UserId> user;            ///< Unset: ours. Another one needs root.
  std::vector<std::string> cgroups;      ///< Folders of cgroup file systems that it enters.
  /// Listening sockets and the like, which must stay open until start() returns.
  struct Inherited {
    std::string variable;  ///< Gets the descriptor's number, which is the same there as here.
    int descriptor = -1;
  };
  std::vector<Inherited> inherited;
};

struct RankSetOptions {
  std::vector<RankSpec> ranks;   ///< This host's, by rank: 1 … kMostRanksPerHost.
  int servers = 0;               ///< GYRE_SERVERS: how many of the job's ranks, the last ones, are parameter servers.
  std::optional<HostPart> part;  ///< Unset: the job is on this host alone.
  std::string master_address = "127.0.0.1";       ///< MASTER_ADDR of the ranks: where torch's store is to be found.
  int master_port = 0;                            ///< MASTER_PORT; 0: a free one of this host.
  std::string run_id = "none";                    ///< TORCHELASTIC_RUN_ID of the ranks.
  int restarts = 0;                               ///< How often these ranks have been started before.
  int max_restarts = 0;                           ///< How often they may be.
  std::optional<std::filesystem::path> timeline;  ///< GYRE_TIMELINE of the ranks.
  std::optional<std::string> log_level;           ///< GYRE_LOG_LEVEL of the ranks; unset leaves `environment`'s.
  /// Which of the job's ranks failed first is decided elsewhere, from what all hosts' sets tell: see RankSet::decide().
  bool decided_elsewhere = false;
};

/// How one rank ended.
struct ExitRecord {
  int rank = 0;
  std::string role;
  int index = 0;  ///< Within its role.
  pid_t process = 0;
  ExitStatus status;
  SteadyClock::time_point ended_at;
  bool asked_to_end = false;  ///< Because of stop() or of another rank's failure.
};

/// What a RankSet tells its owner, from within start() and advance() only. An implementation may call the set's stop(),
/// kill() and pause_output().
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  virtual void started(int rank, pid_t process) = 0;
  /// What a rank has written; nothing where its output goes to a descriptor. Empty bytes: the stream has ended.
  virtual void output(int rank, Stream stream, std::string_view bytes) = 0;
  virtual void ended(const ExitRecord& record) = 0;
  /// After ended(): the rank has failed and the others go on without it, as the job's parameter servers allow.
  virtual void lost(const ExitRecord& record) { static_cast<void>(record); }
  /// That a rank has ended with exit code 0, as the RankSets of the job's other hosts want to hear() it: one line.
  virtual void note_for_other_hosts(const std::string& line) = 0;
  /// Only where the first failure is decided elsewhere. A line that a rank has told about the cause of a failure, and
  /// whether a rank that has not ended is known to be dying.
  virtual void report(const std::string& line) { static_cast<void>(line); }
  virtual void dying(bool now) { static_cast<void>(now); }
  /// Whether what ranks may still write tells the cause of a failure. Asked before one becomes final, which then waits
  /// for a few seconds.
  virtual bool awaits_words() { return false; }
};

struct RankSetResult {
  std::vector<ExitRecord> ranks;         ///< By rank.
  std::optional<int> first_failed_rank;  ///< The cause, when ranks failed on their own.
  std::vector<int> lost;                 ///< Ranks that failed and without which the others went on, in that order.
  std::vector<int> ended_because;        ///< The ranks that still ran then, and were ended.
  std::vector<int> left_before;   ///< Ranks that had left their group before the cause failed, and ended with code 0.
  std::optional<int> stopped_by;  ///< stop()'s signal.
  std::vector<int> killed_after_grace;      ///< The ranks that outlasted it.
  SteadyClock::time_point started;          ///< When the set was made.
  int exit_code() const;                    ///< 128 + stop()'s signal, else the first failed rank's, else 0.
  const ExitRecord* first_failure() const;  ///< Null without one.
};

class Supervisor;

/// The ranks of one job on this host: starts them, watches them, and leaves nothing of them behind: no process that
/// they started, no socket, no memory. Takes no signals and no terminal of the process that it lives in; several may
/// live there at once.
///
/// * The first rank that fails (killed by a signal, or an exit code other than 0) ends the others within a second, or
///   where that is decided elsewhere, within a second of decide(); unless the job's parameter servers have told that
///   they go on without it.
/// * When this process is killed, a guardian process that the set forked kills all that its ranks have started.
///
/// Runs on its owner's thread, as a state machine: poll fd(), then call advance(). Not thread-safe; sets on different
/// threads are independent. The thread that calls start() must outlive the ranks, which the kernel kills with it. The
/// process must not ignore SIGCHLD, nor reap children that are not its own.
class RankSet {
 public:
  /// After a failure the other ranks get SIGTERM, and this much later SIGKILL.
  static constexpr std::chrono::milliseconds kTerminationGrace{400};

  /// Makes everything that can fail before a rank is started. Error(kInvalidArgument, kIo, kResourceExhausted).
  RankSet(RankSetOptions options, RankEvents& events);
  /// Kills what still runs, and waits for its end.
  ~RankSet();
  RankSet(const RankSet&) = delete;
  RankSet& operator=(const RankSet&) = delete;

  /// Starts all ranks, or none: SpawnError for a command that cannot be started.
  void start();

  /// Readable whenever advance() has something to do.
  int fd() const;
  /// Does what is due. Does not wait, but for up to 0.3 s when the last rank has ended, in which it looks for processes
  /// that have left their rank's process group.
  void advance();
  /// All ranks have ended, nothing of them is left, and all their output has been given away.
  bool finished() const;
  /// advance() until finished(). Blocks.
  void run();
  /// Precondition: finished().
  RankSetResult result() const;

  /// Hands `signal` to all ranks; after `grace`, or at the second call, they are killed. False at the second call.
  bool stop(int signal, std::chrono::milliseconds grace);
  void kill();
  /// To all ranks and what they have started, with no consequence for how their end is judged: SIGSTOP, SIGCONT.
  void signal_all(int signal) const;
  /// Whether ranks were asked to end: by stop(), or because one of them has failed.
  bool ending() const;

  /// While paused, output stays in the ranks' pipes; a rank that fills its pipe waits.
  void pause_output(bool paused);
  /// Lines that other hosts' sets have noted, in pieces of any length.
  void hear(std::string_view notes);
  /// Where the first failure is decided elsewhere: a rank of the job has failed, so that it is worth to look for ranks
  /// that are dying; and `rank` of the job was the first.
  void expect_decision();
  void decide(int rank);
  /// Decided elsewhere as well: `rank` has failed, and the others go on without it.
  /// No effect where it is not one of ours, or has not ended.
  void lose(int rank);

  const std::string& rendezvous() const;

 private:
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace gyre::launch
