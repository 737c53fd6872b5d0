#include "gyre/jobs/orders/code_stream.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostHeadBytes = 16'384;
constexpr auto kMostArchiveBytes = std::int64_t{1} << 50;

std::string sha256_of(const JsonFields& fields) {
  std::string sha256 = fields.text("sha256");
  if (!is_sha256(sha256)) fields.refuse("sha256", "must be 64 hexadecimal digits");
  return sha256;
}

std::uint64_t bytes_of(const JsonFields& fields, const char* name, std::int64_t most) {
  return static_cast<std::uint64_t>(fields.integer(name, 0, most));
}

}  // namespace

std::string encode(const CodeRequest& request) {
  return Json{
      {"attempt", request.attempt}, {"sha256", request.sha256}, {"offset", request.offset}, {"bytes", request.bytes}}
      .dump();
}

std::string encode(const CodeRefusal& refusal) {
  return Json{{"sha256", refusal.sha256}, {"why", refusal.why}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string encode_head(const CodePiece& piece) {
  return Json{{"sha256", piece.sha256}, {"offset", piece.offset}, {"total", piece.total}}.dump() + '\n';
}

Bytes encode(const CodePiece& piece) {
  const std::string head = encode_head(piece);
  Bytes payload;
  payload.reserve(head.size() + piece.bytes.size());
  const auto line = as_bytes(head);
  payload.insert(payload.end(), line.begin(), line.end());
  payload.insert(payload.end(), piece.bytes.begin(), piece.bytes.end());
  return payload;
}

CodeRequest code_request_from(const net::Message& message) {
  const Json json = parse_json(as_text(message.payload), kMostHeadBytes, "a request for code");
  const JsonFields fields(json, "a request for code");
  CodeRequest request;
  request.attempt = fields.text("attempt");
  if (!is_plain_name(request.attempt)) fields.refuse("attempt", "is not a name");
  request.sha256 = sha256_of(fields);
  request.offset = bytes_of(fields, "offset", kMostArchiveBytes);
  request.bytes = bytes_of(fields, "bytes", static_cast<std::int64_t>(kMostCodePieceBytes));
  return request;
}

CodePiece code_piece_from(net::Message message) {
  const std::string_view text = as_text(message.payload);
  const std::size_t end = text.substr(0, kMostHeadBytes).find('\n');
  if (end == std::string_view::npos) throw Error(ErrorCode::kCorruptData, "a piece of code does not say its place");
  const Json json = parse_json(text.substr(0, end), kMostHeadBytes, "a piece of code");
  const JsonFields fields(json, "a piece of code");
  CodePiece piece{.sha256 = sha256_of(fields),
                  .offset = bytes_of(fields, "offset", kMostArchiveBytes),
                  .total = bytes_of(fields, "total", kMostArchiveBytes),
                  .bytes = std::span(message.payload).subspan(end + 1),
                  .message = {}};
  if (piece.bytes.size() > kMostCodePieceBytes) throw Error(ErrorCode::kCorruptData, "a piece of code is too long");
  piece.message = std::move(message.payload);  // Whose bytes stay where they are.
  return piece;
}

CodeRefusal code_refusal_from(const net::Message& message) {
  const Json json = parse_json(as_text(message.payload), kMostHeadBytes, "a refusal of code");
  const JsonFields fields(json, "a refusal of code");
  return {.sha256 = sha256_of(fields), .why = fields.text("why")};
}

}  // namespace gyre::jobs::orders
