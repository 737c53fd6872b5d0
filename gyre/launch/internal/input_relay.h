#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/file.h"

namespace gyre::launch {

/// Hands what comes to a descriptor of the launcher on to the stdin of one rank, through a pipe, and never blocks. From
/// a terminal it takes nothing while the launcher is in the background. Not thread-safe.
class InputRelay {
 public:
  /// `when_asked`: takes from `source` only while the rank waits for its stdin, so that what a person types for the
  /// shell meanwhile stays there. Error(kResourceExhausted).
  InputRelay(int source, bool when_asked);

  /// What the rank gets as its stdin.
  int rank_end() const { return rank_end_.get(); }
  /// The rank runs, and has its end of the pipe.
  void started(pid_t process);
  /// Nobody reads any more.
  void close();
  /// The rank has written something; `unfinished`: without the end of a line, as a prompt is.
  void rank_wrote(bool unfinished);

  struct Happened {
    bool asks = false;   ///< The rank has written a prompt, and waits for an answer.
    bool given = false;  ///< It has got input.
  };
  bool is_terminal() const { return terminal_; }
  /// Does what is due, and what can be done now.
  Happened advance();

  void add_waits(std::vector<pollfd>& waits) const;
  /// When advance() should be called, whatever happens.
  std::optional<SteadyClock::time_point> due_at() const;

 private:
  /// From the first look at a rank, twice as long from look to look.
  struct Looks {
    std::optional<SteadyClock::time_point> next;
    std::chrono::milliseconds pause{0};
    void restart();
    void later();
    bool due() const { return next && SteadyClock::now() >= *next; }
  };

  bool may_take() const;
  void take(Happened& happened);
  void give();

  int source_;
  bool when_asked_;
  bool terminal_;
  UniqueFd rank_end_;
  UniqueFd our_end_;
  pid_t process_ = 0;
  std::string pending_;
  bool ended_ = false;
  bool prompted_ = false;  ///< The rank's last line looks like a prompt.
  Looks at_source_;        ///< Set while there is input that must not be taken yet.
  Looks at_prompt_;        ///< Set while the rank's last line has no end.
};

}  // namespace gyre::launch
