#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/gyre/remote.h"
#include "gyre/base/clock.h"
#include "gyre/cli/live_block.h"
#include "gyre/jobs/client/job_status.h"
#include "gyre/jobs/client/log_lines.h"

namespace gyre::app {

/// A job that is followed on a console: its logs, and what happens to it; on a terminal with a block that shows how it
/// is, looked at once a second.
class JobView {
 public:
  /// Asks how the job is.
  using Look = std::function<jobs::client::JobGlance()>;

  /// `verb`: how its own messages begin ("gyre run"); `meanwhile`: called ten times a second while stdout has no room;
  /// may throw to end that.
  JobView(
      const cli::LiveOptions& options, std::string verb, std::function<void()> meanwhile = [] {})
      : block_(options), verb_(std::move(verb)), meanwhile_(std::move(meanwhile)) {}

  bool draws() const { return block_.draws(); }
  /// From now on. Where the block does not draw, nobody is asked. `name`: for failures to ask.
  void watch(std::string name, Look look);
  /// Looks again where it is time to.
  void tick();
  /// For LogTail. As `gyre run` does with the output of its ranks, it tries again for a minute while the disk under
  /// stdout is full, and says so. Error(kIo) where stdout cannot be written.
  void show_log(jobs::client::LogStream stream, std::string_view text);
  /// The same, which goes on all the same.
  void write(jobs::client::LogStream stream, std::string_view text);
  /// A line on stderr.
  void say(const std::string& line);
  /// The block goes until tick() looks again.
  void pause() { block_.clear(); }
  /// The block goes.
  void end();

 private:
  void write_to_stdout(std::string_view text);

  cli::LiveBlock block_;
  const std::string verb_;
  const std::function<void()> meanwhile_;
  std::string name_;
  Look look_;
  SteadyClock::time_point looked_{};
};

/// Of a job of a server, asked on a connection of its own.
JobView::Look look_at(const Remote& remote, const std::vector<std::string>& environment,
                      const jobs::resources::JobName& job);

}  // namespace gyre::app
