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

constexpr std::size_t kMostRequestBytes = 16'384;

}  // namespace

bool is_about_streams(std::uint16_t type) { return type >= stream_message::kOpen && type <= stream_message::kClosed; }

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

std::string encode(const StreamRequest& request) {
  return Json{{"attempt", request.attempt}, {"port", request.port}}.dump();
}

StreamMessage stream_message_from(const net::Message& message) {
  ByteReader reader(message.payload, "a message of a stream");
  StreamMessage result{.type = message.type, .stream = reader.u32()};
  result.bytes = reader.bytes(reader.remaining());
  const bool fits =
      message.type != stream_message::kBytes || (!result.bytes.empty() && result.bytes.size() <= kMostStreamPieceBytes);
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

StreamRequest stream_request_from(const StreamMessage& message) {
  const Json json = parse_json(as_text(message.bytes), kMostRequestBytes, "a request for a stream");
  const JsonFields fields(json, "a request for a stream");
  StreamRequest request;
  request.attempt = fields.text("attempt");
  if (!is_plain_name(request.attempt)) fields.refuse("attempt", "is not a name");
  request.port = static_cast<std::uint16_t>(fields.integer("port", 1, std::numeric_limits<std::uint16_t>::max()));
  return request;
}

}  // namespace gyre::jobs::orders
