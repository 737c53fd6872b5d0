// The payloads of membership messages are read by every rank: any bytes must be read within the limits or refused.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "gyre/base/error.h"
#include "gyre/group/internal/rendezvous/membership_messages.h"

namespace {

template <typename Decode>
void must_be_read_or_refused(const Decode& decode) {
  try {
    decode();
  } catch (const gyre::Error& error) {
    if (error.code() != gyre::ErrorCode::kProtocol) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> payload = std::as_bytes(std::span(data, size));
  must_be_read_or_refused([&] { gyre::group::decode_join(payload); });
  must_be_read_or_refused([&] { gyre::group::decode_membership(payload); });
  must_be_read_or_refused([&] { gyre::group::decode_members(payload, 2); });
  must_be_read_or_refused([&] { static_cast<void>(gyre::group::decode_failure(payload)); });
  must_be_read_or_refused([&] { gyre::group::decode_left(payload, 2); });
  return 0;
}
