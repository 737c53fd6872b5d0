#include "gyre/jobs/node/job_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/process.h"
#include "gyre/jobs/node/internal/session_process.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/message.h"

namespace gyre::jobs::node {

namespace {

namespace stream_message = orders::stream_message;
using internal::SessionProcess;
using orders::CommandRequest;

constexpr std::chrono::seconds kLongestWait{30};
/// What the command has started may hold its pipes for ever.
constexpr std::chrono::milliseconds kLastWords{200};
constexpr std::chrono::seconds kLongestFarewell{5};
constexpr std::chrono::milliseconds kBetweenEndsOfInput{250};
/// From SIGHUP to SIGKILL: where its user has gone, and where the job has ended.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::seconds kGraceAtEnd{1};
constexpr std::uint64_t kCreditAtOnce = orders::kStreamWindow / 4;
constexpr int kNotFound = 127;
constexpr int kCannotRun = 126;

/// Messages from and to the node program; nothing of it waits.
class Channel {
 public:
  explicit Channel(UniqueFd socket) : socket_(std::move(socket)) {
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    ::fcntl(socket_.get(), F_SETFD, FD_CLOEXEC);
  }

  int fd() const { return socket_.get(); }
  short events() const { return static_cast<short>(POLLIN | (waiting_.empty() ? 0 : POLLOUT)); }
  bool gone() const { return gone_; }

  void send(std::uint16_t type, const Bytes& payload) {
    waiting_ += as_text(net::encode_message(type, payload));
    flush();
  }
  void close_with(std::string_view why) { send(stream_message::kClosed, orders::encode_stream(0, as_bytes(why))); }

  void flush() {
    while (!gone_ && !waiting_.empty()) {
      const ssize_t count = ::send(socket_.get(), waiting_.data(), waiting_.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) gone_ = true;
      if (count > 0) waiting_.erase(0, static_cast<std::size_t>(count));
    }
  }
  /// Until all is sent.
  void finish() {
    const Deadline deadline = Deadline::after(kLongestFarewell);
    for (flush(); !gone_ && !waiting_.empty() && !deadline.passed(); flush()) {
      pollfd wait{.fd = fd(), .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, deadline.poll_timeout_ms());
    }
  }

  void receive() {
    std::array<char, std::size_t{16} << 10> bytes;
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      gone_ = true;
      return;
    }
    parser_.append(as_bytes({bytes.data(), static_cast<std::size_t>(count)}));
  }
  std::optional<net::Message> next() { return parser_.next(); }

 private:
  UniqueFd socket_;
  net::MessageParser parser_;
  std::string waiting_;
  bool gone_ = false;
};

/// What the command writes, on its way to the client.
struct Output {
  UniqueFd& from;
  std::uint16_t type;
  std::uint64_t credit = orders::kStreamWindow;

  bool is_wanted() const { return from && credit > 0; }
};

class Session {
 public:
  Session(Channel& channel, const CommandRequest& request, const std::vector<std::string>& environment, int signals)
      : channel_(channel), signals_(signals), process_(request, environment) {}

  /// Until the command has ended and its output is under way, or somebody ends it.
  void run() {
    take_messages();  // Some may have come with the first one.
    while (!channel_.gone() && !closed_ && !asked_to_end_ && !over()) step();
    if (asked_to_end_) channel_.close_with("the job has ended");
    if (channel_.gone() || closed_ || asked_to_end_) {
      channel_.finish();
      return end();
    }
    channel_.send(stream_message::kExit, orders::encode_exit(0, *process_.exit_code()));
    channel_.close_with("");
    channel_.finish();
  }

 private:
  bool over() {
    if (!process_.exit_code()) return false;
    if (!outputs_[0].from && !outputs_[1].from) return true;
    if (!last_words_ || has_more_output()) last_words_ = Deadline::after(kLastWords);
    return last_words_->passed();
  }

  /// There for certain: it waits for credit, or to be read. Time alone proves nothing, since this process may have been
  /// kept from running.
  bool has_more_output() const {
    return std::ranges::any_of(outputs_, [](const Output& each) {
      if (!each.from) return false;
      pollfd look{.fd = each.from.get(), .events = POLLIN, .revents = 0};
      return each.credit == 0 || ::poll(&look, 1, 0) > 0;
    });
  }

  void step() {
    const auto output_fd = [](const Output& output) { return output.is_wanted() ? output.from.get() : -1; };
    const UniqueFd& input = process_.ends().input;
    const bool types = !waiting_.empty() || (input_ended_ && !end_typed_again_);
    std::array<pollfd, 6> waits = {{{channel_.fd(), channel_.events(), 0},
                                    {signals_, POLLIN, 0},
                                    {output_fd(outputs_[0]), POLLIN, 0},
                                    {output_fd(outputs_[1]), POLLIN, 0},
                                    {input && types ? input.get() : -1, POLLOUT, 0},
                                    {last_words_ ? -1 : process_.pidfd(), POLLIN, 0}}};
    int limit_ms = last_words_ ? last_words_->poll_timeout_ms() : -1;
    if (end_typed_again_) {
      const int next_ms = end_typed_again_->poll_timeout_ms();
      limit_ms = limit_ms < 0 ? next_ms : std::min(limit_ms, next_ms);
    }
    if (::poll(waits.data(), waits.size(), limit_ms) < 0 && errno != EINTR) throw system_error("poll", errno);
    if ((waits[0].revents & POLLOUT) != 0) channel_.flush();
    if ((waits[0].revents & ~POLLOUT) != 0) {
      channel_.receive();
      take_messages();
    }
    if (waits[1].revents != 0) asked_to_end_ = true;
    if (waits[2].revents != 0) pass_on(outputs_[0]);
    if (waits[3].revents != 0) pass_on(outputs_[1]);
    if (waits[4].revents != 0 || (end_typed_again_ && end_typed_again_->passed())) feed();
  }

  void take_messages() {
    while (const auto message = channel_.next()) {
      const orders::StreamMessage part = orders::stream_message_from(*message);
      switch (part.type) {
        case stream_message::kBytes: waiting_ += as_text(part.bytes); break;
        case stream_message::kCredit: outputs_[0].credit += credit_from(part); break;
        case stream_message::kErrorsCredit: outputs_[1].credit += credit_from(part); break;
        case stream_message::kEnd: input_ended_ = true; break;
        case stream_message::kSize:
          process_.resize(size_from(part));
          owe(orders::kSizeBytes);
          break;
        default: closed_ = true;
      }
    }
    feed();
  }

  void owe(std::size_t bytes) {
    owed_ += bytes;
    if (owed_ < kCreditAtOnce && !waiting_.empty()) return;
    const auto credit = static_cast<std::uint32_t>(std::exchange(owed_, 0));
    channel_.send(stream_message::kCredit, orders::encode_credit(0, credit));
  }

  void feed() {
    UniqueFd& input = process_.ends().input;
    while (input && !waiting_.empty()) {
      const ssize_t count = ::write(input.get(), waiting_.data(), waiting_.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count < 0) input.reset();  // The command has closed its stdin.
      if (count <= 0) continue;
      waiting_.erase(0, static_cast<std::size_t>(count));
      owe(static_cast<std::size_t>(count));
    }
    if (!waiting_.empty()) {
      const std::size_t dropped = std::exchange(waiting_, {}).size();
      owe(dropped);
    }
    if (!input_ended_ || !input) return;
    if (!process_.has_terminal()) return input.reset();
    type_end(input);
  }

  /// One end of input ends one read, of what stands in the line: a line that is not complete needs another, and a shell
  /// that had not begun to read has lost it.
  void type_end(const UniqueFd& input) {
    const bool first = !end_typed_again_;
    if (!first && !end_typed_again_->passed()) return;
    const char end = process_.end_of_input();
    const bool wanted = first || !process_.has_unread_input();
    if (wanted && ::write(input.get(), &end, 1) != 1 && first) return;
    end_typed_again_ = Deadline::after(kBetweenEndsOfInput);
  }

  void pass_on(Output& output) {
    std::array<std::byte, orders::kMostStreamPieceBytes> bytes;
    const ssize_t count = ::read(output.from.get(), bytes.data(), std::min<std::uint64_t>(bytes.size(), output.credit));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) return output.from.reset();  // EIO of a terminal that nobody has open any more.
    const auto size = static_cast<std::size_t>(count);
    output.credit -= size;
    channel_.send(output.type, orders::encode_stream(0, std::span(bytes).first(size)));
    if (last_words_) last_words_ = Deadline::after(kLastWords);
  }

  /// Its user has gone, or the job has ended.
  void end() {
    const auto wait = [&](std::chrono::seconds grace, bool hurries) {
      const Deadline deadline = Deadline::after(grace);
      while (!process_.exit_code() && !deadline.passed()) {
        std::array<pollfd, 2> waits = {{{process_.pidfd(), POLLIN, 0}, {hurries ? -1 : signals_, POLLIN, 0}}};
        ::poll(waits.data(), waits.size(), deadline.poll_timeout_ms());
        if (waits[1].revents != 0) return;
      }
    };
    process_.hang_up();
    if (!asked_to_end_) wait(kGrace, false);
    pollfd signal{.fd = signals_, .events = POLLIN, .revents = 0};
    if (asked_to_end_ || ::poll(&signal, 1, 0) > 0) wait(kGraceAtEnd, true);
    process_.kill();
  }

  Channel& channel_;
  const int signals_;
  SessionProcess process_;
  std::array<Output, 2> outputs_{
      {{process_.ends().output, stream_message::kBytes}, {process_.ends().errors, stream_message::kErrors}}};
  std::string waiting_;  // For the command's input.
  std::uint64_t owed_ = 0;
  bool input_ended_ = false;
  std::optional<Deadline> end_typed_again_;  // Once it has been typed to a terminal.
  bool closed_ = false;                      // By its user.
  bool asked_to_end_ = false;                // By the job.
  std::optional<Deadline> last_words_;
};

std::optional<CommandRequest> take_request(Channel& channel) {
  const Deadline deadline = Deadline::after(kLongestWait);
  std::optional<net::Message> first;
  while (!(first = channel.next()) && !channel.gone() && !deadline.passed()) {
    pollfd wait{.fd = channel.fd(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, deadline.poll_timeout_ms());
    channel.receive();
  }
  if (!first || first->type != stream_message::kOpen) return std::nullopt;
  return orders::stream_request_from(orders::stream_message_from(*first)).command;
}

UniqueFd end_signal() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw system_error("cannot wait for signals", errno);
  return fd;
}

/// As a shell says it.
void tell_failure(Channel& channel, const SpawnError& error, bool terminal) {
  const std::string sentence = fmt::format("gyre job shell: {}{}", error.what(), terminal ? "\r\n" : "\n");
  const Bytes payload = orders::encode_stream(0, as_bytes(sentence));
  channel.send(terminal ? stream_message::kBytes : stream_message::kErrors, payload);
  const int code = error.errno_value() == ENOENT ? kNotFound : kCannotRun;
  channel.send(stream_message::kExit, orders::encode_exit(0, code));
  channel.close_with("");
  channel.finish();
}

}  // namespace

int serve_job_command(UniqueFd socket, const std::vector<std::string>& environment) {
  ::signal(SIGPIPE, SIG_IGN);
  const UniqueFd signals = end_signal();
  Channel channel(std::move(socket));
  std::optional<CommandRequest> request;
  try {
    request = take_request(channel);
    if (!request) return 1;
    Session(channel, *request, environment, signals.get()).run();
    return 0;
  } catch (const SpawnError& error) {
    tell_failure(channel, error, request->terminal.has_value());
  } catch (const std::exception& error) {
    channel.close_with(fmt::format("the command could not be served: {}", error.what()));
    channel.finish();
  }
  return 1;
}

}  // namespace gyre::jobs::node
