#include "gyre/jobs/orders/byte_stream.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

/// A byte of a word may take six of JSON.
constexpr std::size_t kMostRequestBytes = 16'384 + 6 * CommandRequest::kMostBytes + 4 * CommandRequest::kMostWords;
constexpr std::int64_t kHighestRank = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestSide = std::numeric_limits<std::uint16_t>::max();
constexpr std::size_t kLongestType = 256;

std::size_t bytes_of(const std::vector<std::string>& words) {
  std::size_t bytes = words.size();
  for (const std::string& word : words) bytes += word.size();
  return bytes;
}

/// What may have only so many bytes, and needs some.
bool is_piece(const StreamMessage& message) {
  return !message.bytes.empty() && message.bytes.size() <= kMostStreamPieceBytes;
}

}  // namespace

bool is_about_streams(std::uint16_t type) { return type >= stream_message::kOpen && type <= stream_message::kExit; }

Bytes encode_stream(std::uint32_t stream, std::span<const std::byte> bytes) {
  ByteWriter payload;
  payload.u32(stream);
  payload.bytes(bytes);
  return payload.take();
}

Bytes encode_credit(std::uint32_t stream, std::uint32_t bytes) {
  ByteWriter payload;
  payload.u32(stream);
  payload.u32(bytes);
  return payload.take();
}

Bytes encode_size(std::uint32_t stream, TerminalSize size) {
  ByteWriter payload;
  payload.u32(stream);
  payload.u16(size.columns);
  payload.u16(size.rows);
  return payload.take();
}

Bytes encode_exit(std::uint32_t stream, int code) { return encode_credit(stream, static_cast<std::uint32_t>(code)); }

std::optional<std::string> unsendable(const CommandRequest& request) {
  if (bytes_of(request.words) > CommandRequest::kMostBytes || request.words.size() > CommandRequest::kMostWords) {
    return fmt::format("the command is longer than {} KB; put it into a script", CommandRequest::kMostBytes >> 10);
  }
  try {
    static_cast<void>(to_json(request).dump());
    return std::nullopt;
  } catch (const Json::exception&) {
    return "the command is not UTF-8 text";
  }
}

Json to_json(const CommandRequest& request) {
  Json json = {{"words", request.words}};
  if (request.rank) json["rank"] = *request.rank;
  if (const auto& terminal = request.terminal) {
    json["terminal"] = {{"type", terminal->type}, {"columns", terminal->size.columns}, {"rows", terminal->size.rows}};
  }
  return json;
}

CommandRequest command_request_from_json(const Json& json) {
  const JsonFields fields(json, "a command");
  CommandRequest request;
  for (const Json& word : fields.array("words", CommandRequest::kMostWords)) {
    if (!word.is_string()) fields.refuse("words", "has something else than texts");
    request.words.push_back(word.get<std::string>());
    if (request.words.back().find('\0') != std::string::npos) fields.refuse("words", "has a character NUL");
  }
  if (bytes_of(request.words) > CommandRequest::kMostBytes) fields.refuse("words", "is too long");
  if (fields.has("rank")) request.rank = static_cast<int>(fields.integer("rank", 0, kHighestRank));
  if (!fields.has("terminal")) return request;
  const JsonFields terminal(fields.at("terminal"), "a terminal");
  request.terminal.emplace();
  request.terminal->type = terminal.text("type", kLongestType);
  request.terminal->size.columns = static_cast<std::uint16_t>(terminal.integer("columns", 0, kLargestSide));
  request.terminal->size.rows = static_cast<std::uint16_t>(terminal.integer("rows", 0, kLargestSide));
  return request;
}

std::string encode(const StreamRequest& request) {
  Json json = {{"attempt", request.attempt}};
  if (request.command) {
    json["command"] = to_json(*request.command);
  } else {
    json["port"] = request.port;
  }
  return json.dump();
}

StreamMessage stream_message_from(const net::Message& message) {
  ByteReader reader(message.payload, "a message of a stream");
  StreamMessage result{.type = message.type, .stream = reader.u32()};
  result.bytes = reader.bytes(reader.remaining());
  const bool carries_bytes = message.type == stream_message::kBytes || message.type == stream_message::kErrors;
  const bool fits = !carries_bytes || is_piece(result);
  if (!fits || !is_about_streams(message.type)) {
    throw Error(ErrorCode::kProtocol, fmt::format("a message of type {} with {} bytes belongs to no stream",
                                                  message.type, result.bytes.size()));
  }
  return result;
}

std::uint32_t credit_from(const StreamMessage& message) {
  ByteReader reader(message.bytes, "a stream's credit");
  const std::uint32_t bytes = reader.u32();
  if (bytes > kStreamWindow) throw Error(ErrorCode::kProtocol, "a stream's credit is larger than its window");
  return bytes;
}

TerminalSize size_from(const StreamMessage& message) {
  ByteReader reader(message.bytes, "a terminal's size");
  TerminalSize size;
  size.columns = reader.u16();
  size.rows = reader.u16();
  return size;
}

int exit_from(const StreamMessage& message) {
  ByteReader reader(message.bytes, "an exit code");
  const std::uint32_t code = reader.u32();
  if (code > std::numeric_limits<std::uint8_t>::max()) throw Error(ErrorCode::kProtocol, "there is no such exit code");
  return static_cast<int>(code);
}

StreamRequest stream_request_from(const StreamMessage& message) {
  const Json json = parse_json(as_text(message.bytes), kMostRequestBytes, "a request for a stream");
  const JsonFields fields(json, "a request for a stream");
  StreamRequest request;
  request.attempt = fields.text("attempt");
  if (!is_plain_name(request.attempt)) fields.refuse("attempt", "is not a name");
  if (fields.has("command")) {
    request.command = command_request_from_json(fields.at("command"));
  } else {
    request.port = static_cast<std::uint16_t>(fields.integer("port", 1, std::numeric_limits<std::uint16_t>::max()));
  }
  return request;
}

}  // namespace gyre::jobs::orders
