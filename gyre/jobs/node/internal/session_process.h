#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"
#include "gyre/jobs/orders/byte_stream.h"

namespace gyre::jobs::node::internal {

/// A command that leads a session of its own, on a terminal or on pipes. For single-threaded processes, and from one
/// thread alone, with which it dies.
class SessionProcess {
 public:
  /// Where it has no terminal, `input`, `output` and `errors` are three pipes; with one, `input` and `output` are the
  /// terminal. None of them blocks.
  struct Ends {
    UniqueFd input;
    UniqueFd output;
    UniqueFd errors;
  };

  /// SpawnError where there is no such program, or it may not be run; Error(kIo …). What fails later, the process says
  /// itself, on its stderr, with exit code 126.
  SessionProcess(const orders::CommandRequest& request, std::vector<std::string> environment);
  /// Kills it.
  ~SessionProcess();
  SessionProcess(const SessionProcess&) = delete;
  SessionProcess& operator=(const SessionProcess&) = delete;

  Ends& ends() { return ends_; }
  bool has_terminal() const { return has_terminal_; }
  void resize(orders::TerminalSize size) const;
  /// The character that says on its terminal that no more comes.
  char end_of_input() const;
  /// Something that was typed has not been read yet, or nobody can say.
  bool has_unread_input() const;

  /// Readable once it has ended.
  int pidfd() const { return pidfd_.get(); }
  /// As a shell says it; nothing while it runs.
  std::optional<int> exit_code() const;
  /// Closes its ends, as a terminal that hangs up. It gets SIGHUP; so does what runs in the foreground of its terminal.
  void hang_up();
  /// What hang_up() was said to and has not ended.
  void kill() const;

 private:
  void start(const std::vector<std::string>& words, const std::string& file, std::vector<std::string> environment,
             const std::array<int, 3>& descriptors, int terminal);

  Ends ends_;
  bool has_terminal_;
  pid_t pid_ = -1;
  pid_t foreground_ = -1;  ///< The group that had the terminal when it was hung up.
  UniqueFd pidfd_;
};

}  // namespace gyre::jobs::node::internal
