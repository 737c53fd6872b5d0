#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

  explicit JobView(const cli::LiveOptions& options) : block_(options) {}

  bool draws() const { return block_.draws(); }
  /// From now on. Where the block does not draw, nobody is asked. `name`: for failures to ask.
  void watch(std::string name, Look look);
  /// Looks again where it is time to.
  void tick();
  /// For LogTail. Error(kIo) where stdout cannot be written.
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
  cli::LiveBlock block_;
  std::string name_;
  Look look_;
  SteadyClock::time_point looked_{};
};

/// Of a job of a server, asked on a connection of its own.
JobView::Look look_at(const Remote& remote, const std::vector<std::string>& environment,
                      const jobs::resources::JobName& job);

}  // namespace gyre::app
