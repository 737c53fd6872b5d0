#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/gyre/remote.h"
#include "gyre/base/clock.h"
#include "gyre/cli/live_block.h"
#include "gyre/jobs/client/log_lines.h"

namespace gyre::app {

/// What a block shows of a job that has not ended.
struct JobGlance {
  std::string name{};
  std::string state{};  ///< "queued", "running", …
  int nodes = 0;
  int attempts = 0;
  std::string since{};                    ///< For how long it has run, or waited: "2m10s".
  std::vector<std::string> node_names{};  ///< Of those that it has.
  std::string detail{};                   ///< Why it waits, or what has happened last.
};

/// "train  running  2 nodes  2m10s", and below it the nodes and the detail where there are any.
std::vector<cli::BlockLine> block_of(const JobGlance& job);

/// A block for a job of a server, which it asks about once a second on a connection of its own.
class RemoteJobView {
 public:
  RemoteJobView(const Remote& remote, const std::vector<std::string>& environment)
      : block_(cli::live_options_from_environment()), remote_(remote), environment_(environment) {}

  /// From now on. Where the block does not draw, nobody is asked.
  void watch(const jobs::resources::JobName& job);
  /// For SessionOptions::meanwhile.
  void tick();
  /// For LogTail.
  void show_log(jobs::client::LogStream stream, std::string_view text);
  /// A line on stderr.
  void say(const std::string& line);
  /// The block goes.
  void end();

 private:
  JobGlance glance();

  cli::LiveBlock block_;
  const Remote& remote_;
  std::vector<std::string> environment_;
  std::optional<jobs::resources::JobName> job_;
  std::optional<jobs::client::Session> session_;
  SteadyClock::time_point looked_{};
};

}  // namespace gyre::app
