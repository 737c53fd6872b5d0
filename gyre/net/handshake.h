#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/net/job_key.h"
#include "gyre/net/stream.h"

namespace gyre::net {

/// What the connecting side says about itself, the connection and the side that it wants to reach; proved together with
/// the key.
struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t acceptor = 0;  ///< The rank that is wanted: addresses can lead to another one.
  std::uint32_t purpose = 0;   ///< Meaning is the caller's: membership, link, … Below 2^16.
  std::uint64_t channel = 0;
  std::uint64_t epoch = 0;  ///< Of the group's membership; an old epoch's connections are refused.
  /// This side's job encrypts connections that leave a host. Stated so that a difference can be named; whether a
  /// connection is encrypted follows from each side's own job alone.
  bool encrypts = false;

  friend bool operator==(const Hello&, const Hello&) = default;
};

// Both sides prove that they know the key without sending it, and who they are (docs/formats/wire.md):
//   connector -> acceptor  opening: magic, version, hello, nonce_c                                (72 bytes)
//   acceptor  -> connector answer:  nonce_a, own rank,
//                                   HMAC-SHA256(key, "acceptor" opening nonce_a own rank)         (68 bytes)
//   connector -> acceptor  proof:   HMAC-SHA256(key, "connector" opening nonce_a own rank)        (32 bytes)
//   acceptor  -> connector welcome: one byte, 1; 2: refused, because the sides' `encrypts` differ ( 1 byte)
// An acceptor signs its own rank, whoever is wanted. One that is wanted, but does not accept what the opening asks for,
// signs with the label "refuser". The pieces are pure, so that a blocking connector and an asynchronous acceptor share
// them.
constexpr std::size_t kOpeningBytes = 72;
constexpr std::size_t kAnswerBytes = 68;
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

/// The connection leads to a rank of this job that is not the wanted one: an address that is used twice, or that
/// somebody translates or redirects on the way.
class WrongAcceptor : public Error {
 public:
  WrongAcceptor(std::uint32_t wanted, std::uint32_t reached);
  std::uint32_t reached() const noexcept { return reached_; }

 private:
  std::uint32_t reached_;
};

Opening encode_opening(const Hello& hello, const Nonce& nonce);
/// Error(kProtocol) when it is not one of ours: wrong magic or version.
Hello decode_opening(const Opening& opening);
/// `rank`: who this acceptor is.
Answer make_answer(const JobKey& key, const Opening& opening, std::uint32_t rank, const Nonce& acceptor_nonce);
/// The answer to an opening whose purpose, ranks or epoch are not accepted here; the connection ends after it.
Answer make_refusal(const JobKey& key, const Opening& opening, std::uint32_t rank, const Nonce& acceptor_nonce);
/// Error(kAuthentication) when the acceptor does not know the key; WrongAcceptor when it does, but is not the rank that
/// the opening names; Error(kPeerLost) for a refusal.
Proof check_answer_and_prove(const JobKey& key, const Opening& opening, const Answer& answer);
/// Error(kAuthentication) when the connector does not know the key.
void check_proof(const JobKey& key, const Opening& opening, const Answer& answer, const Proof& proof);

/// The connector's side of the last byte. Error(kMismatch | kProtocol) unless it is a welcome.
void check_welcome(std::byte welcome, const Hello& hello, const std::string& peer);

/// The acceptor's side of the names. Error(kAuthentication) when the opening wants another rank than this one.
void check_addressee(const Hello& hello, std::uint32_t rank);

/// The connector's side, whole. Error(kAuthentication | kTimeout | kPeerLost | kProtocol | kMismatch).
/// `wait_for_answer` is called when the opening is under way: an acceptor may have to start first.
Transcript prove_to_acceptor(
    Stream& stream, const JobKey& key, const Hello& hello, Deadline deadline,
    const std::function<void()>& wait_for_answer = [] {});
/// The acceptor's side, whole. `rank`: who it is.
Hello admit_connector(Stream& stream, const JobKey& key, std::uint32_t rank, Deadline deadline);

}  // namespace gyre::net
