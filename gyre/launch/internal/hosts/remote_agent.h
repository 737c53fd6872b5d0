#pragma once

#include <poll.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/process.h"
#include "gyre/launch/hosts.h"
#include "gyre/launch/internal/hosts/agent_words.h"
#include "gyre/launch/internal/line_splitter.h"

namespace gyre::launch {

/// The agent of one host, seen from where the job was started: its process (or ssh), and what it says. Never blocks.
/// Not thread-safe.
class RemoteAgent {
 public:
  using Lines = std::function<void(Stream stream, std::string_view line)>;

  explicit RemoteAgent(Host host) : host_(std::move(host)) {}

  /// Starts it. failure() says why it could not be.
  void start(const std::vector<std::string>& command, const std::vector<std::string>& environment);

  /// Reads and writes what can be now. Whole lines that it says, once it is reached, go to `lines`.
  void advance(const Lines& lines);
  void add_waits(std::vector<pollfd>& waits) const;

  bool is_there() const { return process_ && !status_; }
  const Host& host() const { return host_; }
  /// The first words have come: the ports that are free on its host, for torch's store and for the rendezvous.
  struct Ports {
    int store = 0;
    int rendezvous = 0;
  };
  const std::optional<Ports>& ports() const { return ports_; }
  /// How it ended, once all that it said has been read.
  const std::optional<ExitStatus>& status() const { return status_; }
  /// Why it was not reached; empty while that may still come.
  const std::string& failure() const { return failure_; }
  void fail(std::string why) { failure_ = std::move(why); }

  /// Lines for its stdin, without their end.
  void tell(std::string_view line);
  void tell(const ToAgent& words) { tell(to_line(words)); }
  /// Closes its stdin, once that has been written: it stops its ranks and ends.
  void let_go();
  void kill();

 private:
  struct Pipe {
    UniqueFd fd;
    LineSplitter lines{kLongestLineBytes};
  };
  static constexpr std::size_t kLongestLineBytes = std::size_t{1} << 20;

  void read(Stream stream, const Lines& lines);
  void hear(Stream stream, std::string_view line, const Lines& lines);
  void write();

  Host host_;
  std::optional<Process> process_;
  UniqueFd stdin_;
  std::string pending_;
  bool letting_go_ = false;
  std::array<Pipe, kStreams> pipes_;
  std::optional<Ports> ports_;
  std::optional<ExitStatus> status_;
  std::string last_words_;  ///< On stderr, before it was reached.
  std::string failure_;
  std::string program_;
};

}  // namespace gyre::launch
