// Anybody may connect: whatever the opening is, the acceptor reads it or refuses it, and no proof fits without the key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "gyre/base/error.h"
#include "gyre/net/handshake.h"

namespace {

/// The next bytes of the input; zeros when it is used up.
template <typename Array>
Array take(const std::uint8_t*& data, std::size_t& size) {
  Array bytes{};
  const std::size_t count = std::min(size, bytes.size());
  std::transform(data, data + count, bytes.begin(), [](std::uint8_t value) { return std::byte{value}; });
  data += count;
  size -= count;
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto opening = take<gyre::net::Opening>(data, size);
  const auto proof = take<gyre::net::Proof>(data, size);
  const auto answer = take<gyre::net::Answer>(data, size);
  gyre::net::JobKey key{};
  key.fill(std::byte{0x5A});
  gyre::net::Nonce nonce{};
  try {
    std::copy_n(opening.end() - static_cast<std::ptrdiff_t>(nonce.size()), nonce.size(), nonce.begin());
    if (gyre::net::encode_opening(gyre::net::decode_opening(opening), nonce) != opening) std::abort();
  } catch (const gyre::Error& error) {
    if (error.code() != gyre::ErrorCode::kProtocol) std::abort();
  }
  bool admitted = true;
  try {
    gyre::net::check_proof(key, opening, gyre::net::make_answer(key, opening, 0, gyre::net::Nonce{}), proof);
  } catch (const gyre::Error&) {
    admitted = false;
  }
  if (admitted) std::abort();
  bool trusted = true;
  try {
    gyre::net::check_answer_and_prove(key, opening, answer);
  } catch (const gyre::Error&) {
    trusted = false;
  }
  if (trusted) std::abort();
  return 0;
}
