#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/net/message.h"

namespace gyre::jobs::orders {

// A flow of bytes both ways between a client of the service and a node on which a job runs (ADR 134). It goes over the
// connection that the node program has opened, and over one that the client has opened to the service, which passes on
// what comes and keeps nothing but what the other side has room for. Its messages are the same on both ways: the number
// of the stream, which to the client is 0, and what each needs.

/// What may be on its way, or be waiting, in each direction of one stream. Whoever gets bytes gives credit for as many
/// once they have gone where they belong.
inline constexpr std::uint64_t kStreamWindow = std::uint64_t{64} << 10;
inline constexpr std::size_t kMostStreamPieceBytes = std::size_t{16} << 10;
/// That one node carries at once. All of their windows are what a renewal of its lease may have to wait behind.
inline constexpr std::size_t kMostStreams = 32;

/// Types of messages; the other ones are in messages.h. In both directions, but for those that say where they go.
namespace stream_message {
constexpr std::uint16_t kOpen = 51;    ///< StreamRequest; to the node.
constexpr std::uint16_t kBytes = 52;   ///< 1 to kMostStreamPieceBytes.
constexpr std::uint16_t kCredit = 53;  ///< u32: so many more bytes may come.
constexpr std::uint16_t kEnd = 54;     ///< No more bytes from here; the other direction goes on.
constexpr std::uint16_t kClosed = 55;  ///< Text: why it ended early, for people; empty: it has ended as it should.
// Of streams to a command (ADR 137): its stdin, stdout or terminal are the bytes above.
constexpr std::uint16_t kErrors =
    56;  ///< From the node: what it writes to stderr, as kBytes, with a window of its own.
constexpr std::uint16_t kErrorsCredit = 57;  ///< To the node: u32, so many more bytes of kErrors may come.
constexpr std::uint16_t kSize = 58;  ///< To the node: TerminalSize. Takes as much of the window as it has bytes.
constexpr std::uint16_t kExit = 59;  ///< From the node: u32, the command's exit code, behind all its output.
}  // namespace stream_message

bool is_about_streams(std::uint16_t type);

/// Of a terminal, in characters.
struct TerminalSize {
  std::uint16_t columns = 80;
  std::uint16_t rows = 24;

  bool operator==(const TerminalSize&) const = default;
};
/// What kSize takes of the window.
inline constexpr std::size_t kSizeBytes = 4;

struct TerminalRequest {
  std::string type{};  ///< The client's TERM; may be empty.
  TerminalSize size{};

  bool operator==(const TerminalRequest&) const = default;
};

/// A command that is to run in a job (ADR 137).
struct CommandRequest {
  /// All of its words, the bytes of which are at most this many.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;
  static constexpr std::size_t kMostWords = 4096;

  std::vector<std::string> words{};  ///< The program and its arguments; empty: a shell.
  std::optional<int> rank{};         ///< Whose environment it gets; unset: that of the node's first.
  std::optional<TerminalRequest> terminal{};

  bool operator==(const CommandRequest&) const = default;
};

/// Where a stream leads on a node.
struct StreamRequest {
  std::string attempt{};                    ///< That runs there.
  std::uint16_t port = 0;                   ///< Of the node's loopback address; 0: to a command.
  std::optional<CommandRequest> command{};  ///< Set where `port` is 0.

  bool operator==(const StreamRequest&) const = default;
};

/// One message, whose `bytes` are those of what it was read from.
struct StreamMessage {
  std::uint16_t type = 0;
  std::uint32_t stream = 0;
  std::span<const std::byte> bytes{};
};

/// The payload of a message: the stream's number, then the bytes.
Bytes encode_stream(std::uint32_t stream, std::span<const std::byte> bytes = {});
Bytes encode_credit(std::uint32_t stream, std::uint32_t bytes);
std::string encode(const StreamRequest& request);
Bytes encode_size(std::uint32_t stream, TerminalSize size);
Bytes encode_exit(std::uint32_t stream, int code);

/// Why a request cannot be sent: its words are too long, or not UTF-8; nothing where it can. Pure.
std::optional<std::string> unsendable(const CommandRequest& request);
/// What stands in JSON for it, between all who pass it on. Error(kCorruptData).
nlohmann::json to_json(const CommandRequest& request);
CommandRequest command_request_from_json(const nlohmann::json& json);

// Error(kCorruptData | kProtocol).
StreamMessage stream_message_from(const net::Message& message);
std::uint32_t credit_from(const StreamMessage& message);
TerminalSize size_from(const StreamMessage& message);
int exit_from(const StreamMessage& message);  ///< 0 to 255.
StreamRequest stream_request_from(const StreamMessage& message);

}  // namespace gyre::jobs::orders
