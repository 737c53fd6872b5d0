#include "gyre/jobs/orders/secure_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cstring>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/net/secure_connection.h"

namespace gyre::jobs::orders {

net::JobKey key_from_hex(std::string_view digits) {
  if (const auto key = gyre::key_from_hex(digits)) return *key;
  throw Error(ErrorCode::kInvalidArgument, "a key is 64 hexadecimal digits");
}

std::uint64_t key_number(const net::JobKey& key) {
  const net::JobKey derived = derive_key(key, "number");
  std::uint64_t number = 0;
  std::memcpy(&number, derived.data(), sizeof number);
  return number;
}

std::unique_ptr<net::Stream> connect_securely(const net::Endpoint& endpoint, const net::JobKey& key, Door door,
                                              Deadline deadline) {
  net::Hello hello;
  hello.purpose = static_cast<std::uint32_t>(door.purpose);
  hello.acceptor = door.node;
  hello.channel = door.key;
  hello.encrypts = true;
  return net::connect_securely(endpoint, key, hello, deadline, deadline);
}

std::unique_ptr<net::Stream> accept_securely(UniqueFd connection, const net::JobKey& key, Door door,
                                             Deadline deadline) {
  auto stream = net::make_socket_stream(std::move(connection), "the connecting side");
  net::Transcript transcript;
  net::read_exactly(*stream, transcript.opening, deadline);
  const net::Hello hello = net::decode_opening(transcript.opening);
  const bool refused = hello.purpose != static_cast<std::uint32_t>(door.purpose) || !hello.encrypts;
  net::Nonce nonce;
  fill_with_secure_random(nonce);
  transcript.answer = (refused ? net::make_refusal : net::make_answer)(key, transcript.opening, door.node, nonce);
  net::write_exactly(*stream, transcript.answer, deadline);
  if (refused) throw Error(ErrorCode::kProtocol, "the connection was made for something else");
  net::check_addressee(hello, door.node);
  net::Proof proof;
  net::read_exactly(*stream, proof, deadline);
  net::check_proof(key, transcript.opening, transcript.answer, proof);
  const std::array<std::byte, 1> welcome{net::kWelcome};
  net::write_exactly(*stream, welcome, deadline);
  return net::with_encryption(std::move(stream), net::TlsSession::Side::kAcceptor, key, transcript, deadline);
}

short MessagePipe::events() const { return static_cast<short>(outgoing_.empty() ? POLLIN : POLLIN | POLLOUT); }

void MessagePipe::send(std::uint16_t type, std::span<const std::byte> payload) {
  const Bytes message = net::encode_message(type, payload);
  if (outgoing_.size() + message.size() > kMostWaitingBytes) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("{} does not read what it is sent", stream_->peer()));
  }
  outgoing_.insert(outgoing_.end(), message.begin(), message.end());
  flush();
}

void MessagePipe::flush() {
  std::size_t sent = 0;
  while (sent < outgoing_.size()) {
    const std::size_t count = stream_->write_some(std::span(outgoing_).subspan(sent));
    if (count == 0) break;
    sent += count;
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent));
}

std::optional<net::Message> MessagePipe::receive() {
  for (;;) {
    if (auto message = parser_.next()) return message;
    std::array<std::byte, 16'384> bytes;
    const std::size_t count = stream_->read_some(bytes);
    if (count == 0) return std::nullopt;
    parser_.append(std::span(bytes).first(count));
  }
}

}  // namespace gyre::jobs::orders
