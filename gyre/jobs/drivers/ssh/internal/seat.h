#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/jobs/drivers/ssh/internal/client.h"
#include "gyre/jobs/drivers/ssh/internal/host_watch.h"
#include "gyre/jobs/drivers/ssh/internal/program_copy.h"
#include "gyre/jobs/drivers/ssh/internal/scripts.h"

namespace gyre::jobs::drivers::ssh {

/// What the seats of a cluster have in common.
struct SeatWorld {
  const SshOptions& options;
  Client& client;
  HostWatch& hosts;
  std::optional<ProgramArchive> packed = {};

  /// Of our programs, for hosts without them. Packed when it is first needed, which takes a second.
  const ProgramArchive& archive() {
    if (!packed) packed = make_program_archive(options.program, options.folder);
    return *packed;
  }
};

/// One node of a request on its host: what is known of it there, and the ssh that looks on. look() never waits long.
/// Not thread-safe.
class Seat {
 public:
  /// What a service before us knew of it.
  enum class Past { kNone, kMayRun, kRan };

  /// `words`: where the files of its ssh begin, in a folder of ours alone.
  Seat(std::string host, Node node, std::filesystem::path words, Past past);

  void look(SeatWorld& world, const std::string& key);
  /// It is to end, or never to begin.
  void end() { ending_ = true; }

  const std::string& host() const { return host_; }
  const Node& node() const { return node_; }
  /// Its agent may run, or have run.
  bool begun() const { return begun_; }
  bool runs() const { return runs_; }  ///< Or has.
  bool over() const { return over_; }
  /// Its agent could not start, or ended badly.
  bool failed() const { return failed_; }
  bool unreachable() const { return unreachable_; }
  /// What keeps it from running, or what its agent has said at its end.
  const std::string& problem() const { return problem_; }

 private:
  enum class Errand { kStart, kWatch, kEnd, kCopy };

  void start_session(SeatWorld& world, const std::string& key);
  void read_session(SeatWorld& world);
  void finish_session(SeatWorld& world);
  /// Whether nothing is lost while its host rests: no job runs there that we must hear of.
  bool can_wait() const { return ending_ || !begun_; }
  Errand errand() const;

  const std::string host_;
  const Node node_;
  const std::filesystem::path words_;
  std::optional<Session> session_;
  Errand errand_of_session_ = Errand::kStart;
  bool answered_ = false;  ///< Its shell has said something.
  bool copy_ = false;
  bool begun_;
  bool was_begun_ = false;  ///< Before this session.
  bool runs_ = false;
  bool ending_ = false;
  bool over_ = false;
  bool failed_ = false;
  bool unreachable_ = false;
  std::string problem_;
  SteadyClock::time_point next_;
  SteadyClock::time_point heard_;  ///< When the host was last reached, or tried for the first time.
};

}  // namespace gyre::jobs::drivers::ssh
