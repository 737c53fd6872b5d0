#include "gyre/jobs/orders/log_stream.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/json_fields.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::orders {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPlaceBytes = 4096;

LogPlace place_of(std::string_view text) {
  const Json json = parse_json(text, kMostPlaceBytes, "a place in a log");
  const JsonFields fields(json, "a place in a log");
  LogPlace place;
  place.attempt = fields.text("attempt");
  if (!is_plain_name(place.attempt)) fields.refuse("attempt", "is not a name");
  place.file = fields.text("file");
  if (!is_log_name(place.file)) fields.refuse("file", "cannot be the name of a log");
  place.offset = static_cast<std::uint64_t>(fields.integer("offset", 0, static_cast<std::int64_t>(kNothingWanted)));
  return place;
}

}  // namespace

bool is_log_name(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/'; };
  if (name.empty() || name.size() > kLongestLogName || name.front() == '.') return false;
  if (std::ranges::any_of(name, is_control)) return false;
  try {
    static_cast<void>(Json(std::string(name)).dump());
    return true;
  } catch (const Json::exception&) {
    return false;  // Not UTF-8.
  }
}

std::string encode(const LogPlace& place) {
  return Json{{"attempt", place.attempt}, {"file", place.file}, {"offset", place.offset}}.dump();
}

Bytes encode_log_piece(const LogPlace& place, std::span<const std::byte> bytes) {
  const std::string head = encode(place) + '\n';
  Bytes payload;
  payload.reserve(head.size() + bytes.size());
  const auto line = as_bytes(head);
  payload.insert(payload.end(), line.begin(), line.end());
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

LogPlace log_place_from(const net::Message& message) { return place_of(as_text(message.payload)); }

LogPiece log_piece_from(const net::Message& message) {
  const std::string_view text = as_text(message.payload);
  const std::size_t end = text.substr(0, kMostPlaceBytes).find('\n');
  if (end == std::string_view::npos) throw Error(ErrorCode::kCorruptData, "a piece of a log does not say its place");
  LogPiece piece{.place = place_of(text.substr(0, end)), .bytes = std::span(message.payload).subspan(end + 1)};
  if (piece.bytes.size() > kMostLogPieceBytes) throw Error(ErrorCode::kCorruptData, "a piece of a log is too long");
  return piece;
}

}  // namespace gyre::jobs::orders
