#include "gyre/params/internal/requests.h"

#include <fmt/format.h>

#include <algorithm>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/params/internal/board.h"

namespace gyre::params::internal {

std::array<std::byte, kRequestBytes> encode(const Request& request) {
  ByteWriter writer;
  writer.u64(static_cast<std::uint64_t>(request.kind));
  writer.u64(request.payload_bytes);
  writer.u64(request.step);
  std::array<std::byte, kRequestBytes> bytes{};
  std::ranges::copy(writer.result(), bytes.begin());
  return bytes;
}

Request decode_request(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "a request to a parameter server");
  const std::uint64_t kind = reader.u64();
  Request request;
  request.payload_bytes = reader.u64();
  request.step = reader.u64();
  if (kind < static_cast<std::uint64_t>(RequestKind::kConfigure) ||
      kind > static_cast<std::uint64_t>(RequestKind::kState) || request.payload_bytes > kMostPayloadBytes) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("a request of kind {} with a payload of {} bytes", kind, request.payload_bytes));
  }
  request.kind = static_cast<RequestKind>(kind);
  if (request.kind == RequestKind::kSum && request.step >= kMeetings) {
    throw Error(ErrorCode::kProtocol, fmt::format("there is no meeting {}", request.step));
  }
  return request;
}

}  // namespace gyre::params::internal
