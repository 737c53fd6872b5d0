#include "gyre/jobs/client/remote_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/jobs/client/escape_keys.h"
#include "gyre/net/message.h"

namespace gyre::jobs::client {

namespace {

namespace stream_message = orders::stream_message;

constexpr std::uint64_t kCreditStep = orders::kStreamWindow / 4;
/// What a pipe takes without making its writer wait, once poll(2) says that there is room.
constexpr std::size_t kMostWrite = 4096;

/// One of the command's outputs.
struct Output {
  int fd = -1;
  const char* name = "";
  std::uint16_t credit_type = 0;
  std::string waiting{};
  std::uint64_t owed = 0;
};

class Follower {
 public:
  Follower(net::http::ClientTunnel& tunnel, const CommandEnds& ends, const CommandSignals& signals)
      : tunnel_(tunnel), input_fd_(ends.input), signals_(signals) {
    outputs_[0] = {.fd = ends.output, .name = "stdout", .credit_type = stream_message::kCredit};
    outputs_[1] = {.fd = ends.errors, .name = "stderr", .credit_type = stream_message::kErrorsCredit};
    if (ends.escape) escape_.emplace(*ends.escape);
  }

  CommandEnd run() {
    while (!done_ && !(over_ && outputs_[0].waiting.empty() && outputs_[1].waiting.empty())) step();
    end_.in_line = in_line_;
    return std::move(end_);
  }
  /// The output stopped within a line.
  bool in_line() const { return in_line_; }

 private:
  void step() {
    const bool reads = !input_ended_ && most_read() > 0 && !over_;
    const auto events = [](const Output& output) { return static_cast<short>(output.waiting.empty() ? 0 : POLLOUT); };
    std::array<pollfd, 5> waits = {{{over_ ? -1 : tunnel_.fd(), POLLIN, 0},
                                    {reads ? input_fd_ : -1, POLLIN, 0},
                                    {outputs_[0].fd, events(outputs_[0]), 0},
                                    {outputs_[1].waiting.empty() ? -1 : outputs_[1].fd, POLLOUT, 0},
                                    {signals_.fd, POLLIN, 0}}};
    const bool has_more = !over_ && tunnel_.has_more();
    if (::poll(waits.data(), waits.size(), has_more ? 0 : -1) < 0) {
      if (errno == EINTR) return;
      throw system_error("poll", errno);
    }
    if (waits[4].revents != 0) hear();
    if (done_) return;
    if (has_more || waits[0].revents != 0) take();
    if (waits[2].revents != 0) write(outputs_[0]);
    if (!done_ && waits[3].revents != 0) write(outputs_[1]);
    if (!done_ && !over_ && waits[1].revents != 0) read();
    send_input();
    send_size();
  }

  void send(std::uint16_t type, const Bytes& payload) {
    if (!over_) tunnel_.write(as_text(net::encode_message(type, payload)));
  }
  /// Nobody wants more of it.
  void leave(CommandEnd end) {
    end_ = std::move(end);
    send(stream_message::kClosed, orders::encode_stream(0));
    done_ = true;
  }

  void hear() {
    switch (signals_.hear()) {
      case CommandSignals::Heard::kNothing: return;
      case CommandSignals::Heard::kNewSize: has_new_size_ = true; return;
      case CommandSignals::Heard::kEnd: break;
    }
    leave({.asked = true});
  }

  void send_size() {
    if (!has_new_size_ || credit_ < orders::kSizeBytes || over_ || done_) return;
    has_new_size_ = false;
    credit_ -= orders::kSizeBytes;
    send(stream_message::kSize, orders::encode_size(0, signals_.size()));
  }

  void take() {
    std::string bytes;
    if (!tunnel_.read(bytes)) throw Error(ErrorCode::kPeerLost, "no end was announced");
    parser_.append(as_bytes(bytes));
    while (const auto message = parser_.next()) {
      const orders::StreamMessage part = orders::stream_message_from(*message);
      switch (part.type) {
        case stream_message::kBytes: outputs_[0].waiting += as_text(part.bytes); break;
        case stream_message::kErrors: outputs_[1].waiting += as_text(part.bytes); break;
        case stream_message::kCredit: credit_ += credit_from(part); break;
        case stream_message::kExit: end_.exit_code = exit_from(part); break;
        case stream_message::kEnd: break;
        default:
          over_ = true;
          end_.why = as_text(part.bytes);
          if (end_.why.empty() && !end_.exit_code) end_.why = "the command was ended";
          return;
      }
      for (const Output& output : outputs_) {
        if (output.waiting.size() > orders::kStreamWindow) {
          throw Error(ErrorCode::kProtocol, "the node sends more than it may");
        }
      }
    }
  }

  void write(Output& output) {
    const std::size_t most = std::min(output.waiting.size(), kMostWrite);
    // With nothing to write it is only asked whether somebody reads it still.
    const ssize_t count = most == 0 ? -1 : ::write(output.fd, output.waiting.data(), most);
    if (count < 0 && most > 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count < 0 && (most == 0 || errno == EPIPE || errno == EIO)) {
      return leave({.output_closed = true});
    }
    if (count < 0) {
      const int failure = errno;
      leave({});
      throw system_error(fmt::format("cannot write to {}", output.name), failure);
    }
    if (&output == outputs_.data()) in_line_ = output.waiting[static_cast<std::size_t>(count) - 1] != '\n';
    output.waiting.erase(0, static_cast<std::size_t>(count));
    output.owed += static_cast<std::uint64_t>(count);
    if (over_ || (output.owed < kCreditStep && !output.waiting.empty())) return;
    const auto credit = static_cast<std::uint32_t>(std::exchange(output.owed, 0));
    send(output.credit_type, orders::encode_credit(0, credit));
  }

  /// Without the window's leave what is typed is read all the same, for the escape keys: the node may hang.
  std::size_t most_read() const {
    return (escape_ ? orders::kStreamWindow : static_cast<std::size_t>(credit_)) - input_.size();
  }

  void read() {
    std::string bytes(std::min(orders::kMostStreamPieceBytes, most_read()), '\0');
    const ssize_t count = ::read(input_fd_, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    input_ended_ = count <= 0;  // EIO of a terminal that is gone, or in the background.
    bytes.resize(input_ended_ ? 0 : static_cast<std::size_t>(count));
    if (!escape_) {
      input_ += bytes;
      return;
    }
    input_ += input_ended_ ? escape_->rest() : escape_->pass(bytes);
    if (escape_->leaves()) leave({.left = true});
  }

  void send_input() {
    if (over_ || done_) return;
    while (!input_.empty() && credit_ > 0) {
      const std::size_t size =
          std::min({input_.size(), static_cast<std::size_t>(credit_), orders::kMostStreamPieceBytes});
      send(stream_message::kBytes, orders::encode_stream(0, as_bytes(std::string_view(input_).substr(0, size))));
      input_.erase(0, size);
      credit_ -= size;
    }
    if (!input_ended_ || !input_.empty() || std::exchange(end_sent_, true)) return;
    send(stream_message::kEnd, orders::encode_stream(0));
  }

  net::http::ClientTunnel& tunnel_;
  const int input_fd_;
  const CommandSignals& signals_;
  std::array<Output, 2> outputs_;
  net::MessageParser parser_;
  std::uint64_t credit_ = orders::kStreamWindow;
  std::optional<EscapeKeys> escape_;
  std::string input_;  // That waits for the window.
  bool input_ended_ = false;
  bool end_sent_ = false;
  bool in_line_ = false;
  bool has_new_size_ = false;
  bool over_ = false;  // The other side has said so.
  bool done_ = false;  // Nothing more is written here.
  CommandEnd end_;
};

}  // namespace

CommandEnd follow_command(net::http::ClientTunnel& tunnel, const CommandEnds& ends, const CommandSignals& signals) {
  Follower follower(tunnel, ends, signals);
  try {
    return follower.run();
  } catch (const Error& error) {
    // A service that is killed closes the connection, or resets it where it had not read everything.
    if (error.code() != ErrorCode::kPeerLost && error.code() != ErrorCode::kTimeout) throw;
    return {.why = "the connection to the service is lost, and the command is ended with it",
            .in_line = follower.in_line()};
  }
}

}  // namespace gyre::jobs::client
