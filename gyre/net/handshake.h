#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/net/job_key.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// What the connecting side says about itself and the connection; proved together with the key.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t purpose = 0;  ///< Meaning is the caller's: membership, link, …
  std::uint64_t channel = 0;
  std::uint64_t epoch = 0;  ///< Of the group's membership; an old epoch's connections are refused.
  /// This side's job encrypts connections that leave a host. Stated so that a difference can be named; whether a
  /// connection is encrypted follows from each side's own job alone.
  bool encrypts = false;

  friend bool operator==(const Hello&, const Hello&) = default;
};

// Both sides prove that they know the key without sending it (docs/formats/wire.md):
//   connector -> acceptor  opening: magic, version, hello, nonce_c                            (72 bytes)
//   acceptor  -> connector answer:  nonce_a, HMAC-SHA256(key, "acceptor" opening nonce_a)     (64 bytes)
//   connector -> acceptor  proof:   HMAC-SHA256(key, "connector" opening nonce_a)             (32 bytes)
//   acceptor  -> connector welcome: one byte, 1; 2: refused, because the other side's `encrypts` is different   ( 1
//   byte)
// The pieces are pure, so that a blocking connector and an asynchronous acceptor share them.
constexpr std::size_t kOpeningBytes = 72;
constexpr std::size_t kAnswerBytes = 64;
constexpr std::size_t kProofBytes = 32;
constexpr std::byte kWelcome{1};
constexpr std::byte kOtherEncryption{2};
using Nonce = std::array<std::byte, 32>;
using Opening = std::array<std::byte, kOpeningBytes>;
using Answer = std::array<std::byte, kAnswerBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// What makes one connection's handshake different from every other's.
struct Transcript {
  Opening opening;
  Answer answer;
};

Opening encode_opening(const Hello& hello, const Nonce& nonce);
/// Error(kProtocol) when it is not one of ours: wrong magic or version.
Hello decode_opening(const Opening& opening);
Answer make_answer(const JobKey& key, const Opening& opening, const Nonce& acceptor_nonce);
/// Error(kAuthentication) when the acceptor does not know the key.
Proof check_answer_and_prove(const JobKey& key, const Opening& opening, const Answer& answer);
/// Error(kAuthentication) when the connector does not know the key.
void check_proof(const JobKey& key, const Opening& opening, const Answer& answer, const Proof& proof);

/// The connector's side of the last byte. Error(kMismatch | kProtocol) unless it is a welcome.
void check_welcome(std::byte welcome, const Hello& hello, const std::string& peer);

/// The connector's side, whole. Error(kAuthentication | kTimeout | kPeerLost | kProtocol | kMismatch).
/// `wait_for_answer` is called when the opening is under way: an acceptor may have to start first.
Transcript prove_to_acceptor(
    Stream& stream, const JobKey& key, const Hello& hello, Deadline deadline,
    const std::function<void()>& wait_for_answer = [] {});
/// The acceptor's side, whole.
Hello admit_connector(Stream& stream, const JobKey& key, Deadline deadline);

}  // namespace gyre::net
