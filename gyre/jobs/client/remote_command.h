#pragma once

#include <functional>
#include <optional>
#include <string>

#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/net/http/client.h"

namespace gyre::jobs::client {

/// Where a command's input comes from and its output goes; open, and owned by the caller.
struct CommandEnds {
  int input = 0;
  int output = 1;
  int errors = 2;
  /// Where `input` is a terminal that passes on every key: the first of the EscapeKeys. These work at any time.
  std::optional<char> escape{};
};

/// What wakes a command's client, and what it then does.
struct CommandSignals {
  enum class Heard { kNothing, kEnd, kNewSize };
  int fd = -1;  ///< Readable when hear() has something.
  std::function<Heard()> hear{};
  std::function<orders::TerminalSize()> size{};
};

struct CommandEnd {
  std::optional<int> exit_code{};  ///< The command's; unset where it did not end by itself.
  std::string why{};               ///< Why it ended early, for people; empty where one of these is true:
  bool asked = false;              ///< CommandSignals said so.
  bool left = false;               ///< The escape keys did.
  bool output_closed = false;      ///< Whoever read the output has gone.
  bool in_line = false;            ///< The output stopped within a line.
};

/// Passes bytes on between a stream to a command (orders/byte_stream.h) and its ends, until the command has ended and
/// all of its output is written, or one side has gone. Holds no more than the stream's windows; an output that takes
/// nothing does not hold up the other one. Error(kProtocol | kIo): a lost service is an answer, and a full disk is not.
CommandEnd follow_command(net::http::ClientTunnel& tunnel, const CommandEnds& ends, const CommandSignals& signals);

}  // namespace gyre::jobs::client
