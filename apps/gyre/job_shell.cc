#include "apps/gyre/job_shell.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "apps/gyre/program_start.h"
#include "apps/gyre/remote.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/process.h"
#include "gyre/cli/table.h"
#include "gyre/jobs/client/remote_command.h"
#include "gyre/jobs/resources/job_end.h"
#include "gyre/net/http/error.h"

namespace gyre::app {

namespace {

using jobs::client::below;
using jobs::client::CommandEnd;
using jobs::client::CommandSignals;
using jobs::client::path_of;
using jobs::client::Session;
using jobs::orders::CommandRequest;
using jobs::orders::TerminalSize;

constexpr const char* kVerb = JobShell::kVerb;
constexpr const char* kProtocol = "gyre-stream";

constexpr char kExplanation[] = R"(
Runs COMMAND, or else bash (sh where there is none), alongside the job's processes: as the job's account, with its
variables, secrets, work folder, limits and container, on the node of rank 0, of RANK, or on the NODE of that name. If
stdin and stdout are a terminal, the command gets one too, and Enter, ~ and . leave it if it answers nothing, as with
ssh (~~ is a ~; --escape chooses another key). It ends with the job, and with this program. Only the job's submitter and
administrators can do this; the server's audit log has each command.

Exit code: the command's; 128 + N after signal N; 125 for all that the command has not ended with itself (a mistake in
this command line, no such job, a lost connection, its job's end), 126 if the command cannot be run, 127 if it is not
found.

Examples:
  gyre job shell train-1
  gyre job shell train-1 3 -- nvidia-smi
  gyre job shell train-1 node-2 -- top
  gyre job shell train-1 -- tar c checkpoints > checkpoints.tar
  gyre job shell train-1 -- bash -c 'cat > notes.txt' < notes.txt)";

/// A terminal of ours that passes on every key as it is, until this object goes.
class RawTerminal {
 public:
  /// Nothing where `fd` is no terminal.
  explicit RawTerminal(int fd) : fd_(fd), is_terminal_(::tcgetattr(fd, &before_) == 0) { set(); }
  ~RawTerminal() {
    if (!is_terminal_) return;
    ::signal(SIGTTOU, SIG_IGN);  // Also from the background.
    ::tcsetattr(fd_, TCSADRAIN, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  bool is_terminal() const { return is_terminal_; }

  /// Again, after a shell has stopped and continued us.
  void set() const {
    if (!is_terminal_) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    ::tcsetattr(fd_, TCSADRAIN, &raw);
  }

 private:
  const int fd_;
  termios before_{};
  const bool is_terminal_;
};

/// Signals arrive here while it lives.
class ShellSignals {
 public:
  ShellSignals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT}) ::sigaddset(&signals, signal);
    ::pthread_sigmask(SIG_BLOCK, &signals, &before_);
    fd_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~ShellSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ShellSignals(const ShellSignals&) = delete;
  ShellSignals& operator=(const ShellSignals&) = delete;

  int fd() const { return fd_.get(); }
  /// The next one; 0: none.
  int next() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

TerminalSize size_of_terminal() {
  for (const int fd : {STDOUT_FILENO, STDIN_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return {.columns = size.ws_col, .rows = size.ws_row};
  }
  return {};
}

int exit_code_of(const CommandEnd& end, int signal, bool terminal) {
  if (end.asked) return 128 + signal;
  if (end.output_closed) return 128 + SIGPIPE;
  const std::string why = end.left ? "left, and the command is ended with it" : end.why;
  if (!why.empty()) {
    print_failure((terminal && end.in_line ? "\n" : "") + std::string(kVerb), cli::printable(why));
    return JobShell::kOursExitCode;
  }
  return end.exit_code.value_or(JobShell::kOursExitCode);
}

int follow(net::http::ClientTunnel& tunnel, bool terminal, std::optional<char> escape) {
  ::signal(SIGPIPE, SIG_IGN);  // A reader of our output may go; the command is to hear of it.
  const ShellSignals signals;
  int received = 0;
  using Heard = CommandSignals::Heard;
  std::optional<RawTerminal> raw;
  if (terminal) raw.emplace(STDIN_FILENO);
  const CommandSignals heard{.fd = signals.fd(),
                             .hear =
                                 [&] {
                                   received = signals.next();
                                   if (received == SIGCONT && raw) raw->set();
                                   const bool resized = received == SIGWINCH || received == SIGCONT;
                                   if (resized && terminal) return Heard::kNewSize;
                                   return resized || received == 0 ? Heard::kNothing : Heard::kEnd;
                                 },
                             .size = size_of_terminal};
  // Where keys come from no terminal of ours, they are nobody's.
  if (!raw || !raw->is_terminal()) escape.reset();
  const CommandEnd end = jobs::client::follow_command(tunnel, {.escape = escape}, heard);
  raw.reset();
  return exit_code_of(end, received, terminal);
}

}  // namespace

JobShell::JobShell(VerbGroup& group) {
  CLI::App* verb = group.app().add_subcommand("shell", "Run a shell, or one command, in a running job");
  job_.add_options(*verb, Remote::kWorkspace);
  verb->add_option("RANK-or-NODE", where_, "Whose node, or which (default: that of rank 0)")->type_name("");
  CLI::Option* with = verb->add_flag("-t,--terminal", terminal_, "Give the command a terminal, whatever stdin is");
  CLI::Option* without = verb->add_flag("-T,--no-terminal", no_terminal_, "Give it none");
  with->excludes(without);
  verb->add_option(
          "--escape", escape_,
          "In place of ~, the key that leaves a terminal with Enter before it and . behind it; none: there is none")
      ->capture_default_str()
      ->type_name("KEY");
  verb->footer(kExplanation);
  group.add(verb, [this](const std::vector<std::string>& environment) { return run(environment); });
}

std::vector<std::string> JobShell::take_command(const std::vector<std::string>& arguments) {
  const auto dashes = std::ranges::find(arguments, "--");
  has_dashes_ = dashes != arguments.end();
  if (has_dashes_) command_.assign(dashes + 1, arguments.end());
  return {arguments.begin(), dashes};
}

std::string JobShell::hint() const {
  return has_dashes_ ? "" : "; a command stands behind `--`: gyre job shell JOB -- COMMAND";
}

jobs::client::Query JobShell::place() const {
  if (where_.empty()) throw UsageError("RANK-or-NODE is empty; without it, the node is that of rank 0");
  const bool is_rank = !where_.empty() && std::ranges::all_of(where_, [](char c) { return c >= '0' && c <= '9'; });
  return {{is_rank ? "rank" : "node", where_}};
}

int JobShell::run(const std::vector<std::string>& environment) const {
  try {
    return run_command(environment);
  } catch (const Error& error) {
    print_failure(kVerb, error.what());
    return kOursExitCode;
  }
}

std::optional<char> JobShell::escape() const {
  if (escape_ == "none") return std::nullopt;
  if (escape_.size() == 1 && escape_[0] > ' ' && escape_[0] <= '~') return escape_[0];
  throw UsageError(fmt::format("--escape: '{}' is neither one character nor none", cli::printable(escape_)));
}

int JobShell::run_command(const std::vector<std::string>& environment) const {
  const std::optional<char> escape = this->escape();
  const jobs::client::Query place = this->place();
  const bool both = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  const bool terminal = terminal_ || (both && !no_terminal_);
  CommandRequest request{.words = command_};
  if (terminal) request.terminal = {.type = variable_of(environment, "TERM"), .size = size_of_terminal()};
  if (const auto why = unsendable(request)) throw Error(ErrorCode::kInvalidArgument, *why);
  Session session = job_.remote.session(environment);
  const auto job = job_.find(session, environment);
  const auto tunnel = [&] {
    try {
      return session.tunnel(below(path_of(job), "shell"), place, kProtocol, Json{{"command", to_json(request)}});
    } catch (const net::http::HttpError& error) {
      if (error.name() == "NoSuchNode") throw Error(ErrorCode::kInvalidArgument, error.what() + hint());
      if (error.name() != "NotFound") throw;
      throw Error(ErrorCode::kUnsupported,
                  "the server is of an earlier version of Gyre, which runs no commands in jobs");
    }
  }();
  return follow(*tunnel, terminal, escape);
}

}  // namespace gyre::app
