// A peer controls the flow of messages and how it is cut: the first byte says where, the rest is the flow. Both parts
// must give the same messages as the whole.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/net/message.h"

namespace {

std::vector<gyre::net::Message> parse(const std::vector<std::span<const std::byte>>& parts) {
  gyre::net::MessageParser parser;
  std::vector<gyre::net::Message> messages;
  try {
    for (const auto part : parts) {
      parser.append(part);
      while (auto message = parser.next()) messages.push_back(std::move(*message));
    }
  } catch (const gyre::Error& error) {
    const bool expected = error.code() == gyre::ErrorCode::kProtocol || error.code() == gyre::ErrorCode::kCorruptData;
    if (!expected) std::abort();
  }
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> flow = std::as_bytes(std::span(data, size)).subspan(1);
  const std::size_t cut = data[0] % (flow.size() + 1);
  const auto whole = parse({flow});
  if (parse({flow.first(cut), flow.subspan(cut)}).size() != whole.size()) std::abort();
  return 0;
}
