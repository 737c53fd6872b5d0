#include "gyre/jobs/node/internal/shell_session.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <optional>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/pipe.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/launch_specification.h"
#include "gyre/jobs/orders/secure_connection.h"

namespace gyre::jobs::node::internal {

using orders::accept_securely;
using orders::MessagePipe;
using orders::Purpose;

namespace {

constexpr std::chrono::seconds kLongestHandshake{10};
constexpr std::size_t kMostOutputBytes = std::size_t{1} << 20;  // On the way; then the command has to wait.
constexpr std::size_t kMostInputBytes = std::size_t{64} << 20;  // That the command does not read.
constexpr std::chrono::milliseconds kLastWords{200};            // A daemon left behind may hold the pipes for ever.
constexpr std::chrono::seconds kFarewell{5};

class Session {
 public:
  Session(MessagePipe& pipe, const std::string& command, const std::vector<std::string>& environment)
      : pipe_(pipe), process_(start(command, environment)) {
    ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  }

  /// Until the command has ended and its last words are under way, or the connection breaks.
  void run() {
    try {
      take_messages();  // Some may have come with the first one, and poll(2) does not see them any more.
      while (!over()) step();
    } catch (const Error&) {
      say_farewell();
      return;
    }
    ByteWriter code;
    code.u32(static_cast<std::uint32_t>(process_.exit_status()->shell_code()));
    pipe_.send(shell_message::kExit, code.result());
    // As long as there is a reader, as while the command ran: it may be `| less`.
    while (pipe_.waiting_bytes() > 0) {
      pollfd wait{.fd = pipe_.fd(), .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
      pipe_.flush();
    }
    // What it started and left in the background lives on, as after ssh.
    process_.reap();
  }

 private:
  Process start(const std::string& command, const std::vector<std::string>& environment) {
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe error = make_pipe();
    SpawnOptions options;
    options.argv = {shell_program()};
    if (!command.empty()) options.argv.insert(options.argv.end(), {"-c", command});
    options.environment = environment;
    options.folder = variable_of(environment, "HOME");
    options.stdin_fd = in.read.get();
    options.stdout_fd = out.write.get();
    options.stderr_fd = error.write.get();
    options.own_process_group = true;
    options.parent_death_signal = SIGKILL;
    input_ = std::move(in.write);
    outputs_ = {std::move(out.read), std::move(error.read)};
    return Process::spawn(options);
  }

  bool over() {
    if (!process_.exit_status()) return false;
    if (!outputs_[0] && !outputs_[1]) return true;
    if (!last_words_ || has_more_output()) last_words_ = Deadline::after(kLastWords);
    return last_words_->passed();
  }

  bool has_room() const { return pipe_.waiting_bytes() < kMostOutputBytes; }

  /// There for certain: it waits for room, or to be read. Time alone proves nothing: the reader may be slow, or this
  /// process kept from running.
  bool has_more_output() const {
    return std::ranges::any_of(outputs_, [&](const UniqueFd& output) {
      pollfd look{.fd = output.get(), .events = POLLIN, .revents = 0};
      return output && (!has_room() || ::poll(&look, 1, 0) > 0);
    });
  }

  void step() {
    const auto output_fd = [&](const UniqueFd& fd) { return fd && has_room() ? fd.get() : -1; };
    std::array<pollfd, 5> waits = {{{pipe_.fd(), pipe_.events(), 0},
                                    {output_fd(outputs_[0]), POLLIN, 0},
                                    {output_fd(outputs_[1]), POLLIN, 0},
                                    {input_ && !waiting_.empty() ? input_.get() : -1, POLLOUT, 0},
                                    {last_words_ ? -1 : process_.pidfd(), POLLIN, 0}}};
    const int limit_ms = last_words_ ? last_words_->poll_timeout_ms() : -1;
    if (::poll(waits.data(), waits.size(), limit_ms) < 0 && errno != EINTR) throw system_error("poll", errno);
    if ((waits[0].revents & POLLOUT) != 0) pipe_.flush();
    if ((waits[0].revents & ~POLLOUT) != 0) take_messages();
    if (waits[1].revents != 0) pass_on(outputs_[0], shell_message::kOutput);
    if (waits[2].revents != 0) pass_on(outputs_[1], shell_message::kError);
    if (waits[3].revents != 0) feed();
  }

  void take_messages() {
    while (const auto message = pipe_.receive()) {
      if (message->type == shell_message::kInputEnd) input_ended_ = true;
      if (message->type == shell_message::kInput) waiting_.append(as_text(message->payload));
      if (waiting_.size() > kMostInputBytes) throw Error(ErrorCode::kResourceExhausted, "the command reads nothing");
    }
    feed();
  }

  void feed() {
    while (input_ && !waiting_.empty()) {
      const ssize_t count = ::write(input_.get(), waiting_.data(), waiting_.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) input_.reset();  // The command has closed its stdin.
      if (count > 0) waiting_.erase(0, static_cast<std::size_t>(count));
    }
    if (!input_) waiting_.clear();
    if (input_ended_ && waiting_.empty()) input_.reset();
  }

  void pass_on(UniqueFd& from, std::uint16_t type) {
    std::array<std::byte, 16'384> bytes;
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return;
    if (count <= 0) return from.reset();
    pipe_.send(type, std::span(bytes).first(static_cast<std::size_t>(count)));
    if (last_words_) last_words_ = Deadline::after(kLastWords);
  }

  void say_farewell() {
    input_.reset();
    for (UniqueFd& output : outputs_) output.reset();
    if (!process_.wait(Deadline::after(kFarewell))) process_.signal(SIGHUP);
    process_.wait(Deadline::after(kFarewell));
    process_.signal(SIGKILL);
    process_.wait(Deadline::never());
  }

  MessagePipe& pipe_;
  UniqueFd input_;
  std::array<UniqueFd, 2> outputs_;
  std::string waiting_;  // For the command's stdin.
  bool input_ended_ = false;
  std::optional<Deadline> last_words_;
  Process process_;
};

}  // namespace

int serve_shell_session(UniqueFd connection, const net::JobKey& key, std::uint32_t node,
                        const std::vector<std::string>& environment) {
  try {
    ::signal(SIGPIPE, SIG_IGN);
    const Deadline deadline = Deadline::after(kLongestHandshake);
    MessagePipe pipe(accept_securely(std::move(connection), key, {Purpose::kShell, node}, deadline));
    std::optional<net::Message> first;
    while (!(first = pipe.receive())) {
      pollfd wait{.fd = pipe.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, deadline.poll_timeout_ms()) == 0) return 1;
    }
    if (first->type != shell_message::kCommand) return 1;
    Session(pipe, std::string(as_text(first->payload)), environment).run();
    return 0;
  } catch (const std::exception&) {
    return 1;  // The client has seen the connection break, and says so.
  }
}

}  // namespace gyre::jobs::node::internal
