#include "gyre/net/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/random.h"

namespace gyre::net {
namespace {

constexpr std::string_view kMagic = "GYRELINK";
constexpr std::uint32_t kVersion = 4;
constexpr std::uint16_t kEncrypts = 1;  // The only flag.

/// The two sides sign with different labels, so that neither can be made to echo the other's proof.
constexpr std::string_view kAcceptorLabel = "acceptor";
constexpr std::string_view kRefuserLabel = "refuser";
constexpr std::string_view kConnectorLabel = "connector";

/// What both sides sign of an answer: the acceptor's nonce and rank.
constexpr std::size_t kSignedAnswerBytes = sizeof(Nonce) + sizeof(std::uint32_t);

Sha256 signature(const JobKey& key, std::string_view label, const Opening& opening, const Answer& answer) {
  ByteWriter transcript;
  transcript.text(label);
  transcript.bytes(opening);
  transcript.bytes(std::span(answer).first(kSignedAnswerBytes));
  return hmac_sha256(key, transcript.result());
}

Nonce make_nonce() {
  Nonce nonce;
  fill_with_secure_random(nonce);
  return nonce;
}

}  // namespace

WrongAcceptor::WrongAcceptor(std::uint32_t wanted, std::uint32_t reached)
    : Error(ErrorCode::kAuthentication,
            fmt::format("rank {} answers a connection to rank {}; an address is used twice, or redirected on the way",
                        reached, wanted)),
      reached_(reached) {}

Opening encode_opening(const Hello& hello, const Nonce& nonce) {
  GYRE_CHECK(hello.purpose <= 0xFFFFU);
  ByteWriter writer;
  writer.text(kMagic);
  writer.u32(kVersion);
  writer.u16(hello.encrypts ? kEncrypts : 0);
  writer.u16(static_cast<std::uint16_t>(hello.purpose));
  writer.u32(hello.rank);
  writer.u32(hello.acceptor);
  writer.u64(hello.channel);
  writer.u64(hello.epoch);
  writer.bytes(nonce);
  Opening opening;
  std::copy(writer.result().begin(), writer.result().end(), opening.begin());
  return opening;
}

Hello decode_opening(const Opening& opening) {
  ByteReader reader(opening, "a connection's opening");
  if (reader.text(kMagic.size()) != kMagic) {
    throw Error(ErrorCode::kProtocol,
                "the connection does not open like one of Gyre's; something else talks to this "
                "endpoint");
  }
  const std::uint32_t version = reader.u32();
  const std::uint16_t flags = reader.u16();
  if (version != kVersion || (flags & ~kEncrypts) != 0) {
    throw Error(ErrorCode::kProtocol, fmt::format("the other side speaks version {} (flags {}) of the handshake, "
                                                  "this one version {}; run the same Gyre on every host",
                                                  version, flags, kVersion));
  }
  Hello hello;
  hello.encrypts = (flags & kEncrypts) != 0;
  hello.purpose = reader.u16();
  hello.rank = reader.u32();
  hello.acceptor = reader.u32();
  hello.channel = reader.u64();
  hello.epoch = reader.u64();
  return hello;
}

namespace {

Answer signed_answer(const JobKey& key, std::string_view label, const Opening& opening, std::uint32_t rank,
                     const Nonce& acceptor_nonce) {
  ByteWriter writer;
  writer.bytes(acceptor_nonce);
  writer.u32(rank);
  Answer answer;
  std::copy(writer.result().begin(), writer.result().end(), answer.begin());
  const Sha256 proof = signature(key, label, opening, answer);
  std::copy(proof.begin(), proof.end(), answer.begin() + kSignedAnswerBytes);
  return answer;
}

bool is_signed(const JobKey& key, std::string_view label, const Opening& opening, const Answer& answer) {
  const Sha256 expected = signature(key, label, opening, answer);
  return equal_in_constant_time(expected, std::span(answer).subspan(kSignedAnswerBytes));
}

}  // namespace

Answer make_answer(const JobKey& key, const Opening& opening, std::uint32_t rank, const Nonce& acceptor_nonce) {
  return signed_answer(key, kAcceptorLabel, opening, rank, acceptor_nonce);
}

Answer make_refusal(const JobKey& key, const Opening& opening, std::uint32_t rank, const Nonce& acceptor_nonce) {
  return signed_answer(key, kRefuserLabel, opening, rank, acceptor_nonce);
}

Proof check_answer_and_prove(const JobKey& key, const Opening& opening, const Answer& answer) {
  const bool refused = is_signed(key, kRefuserLabel, opening, answer);
  if (!refused && !is_signed(key, kAcceptorLabel, opening, answer)) {
    throw Error(ErrorCode::kAuthentication,
                "the accepting side does not know this job's key; it belongs to another "
                "job, or the ranks were given different keys");
  }
  const std::uint32_t wanted = decode_opening(opening).acceptor;
  const std::uint32_t reached = ByteReader(std::span(answer).subspan(sizeof(Nonce)), "an acceptor's rank").u32();
  if (reached != wanted) throw WrongAcceptor(wanted, reached);
  if (refused) {
    throw Error(ErrorCode::kPeerLost, fmt::format("rank {} refuses the connection, which is for something else or for "
                                                  "another group of this job",
                                                  reached));
  }
  return signature(key, kConnectorLabel, opening, answer);
}

void check_proof(const JobKey& key, const Opening& opening, const Answer& answer, const Proof& proof) {
  const Sha256 expected = signature(key, kConnectorLabel, opening, answer);
  if (!equal_in_constant_time(expected, proof)) {
    throw Error(ErrorCode::kAuthentication, "the connecting side could not prove that it knows this job's key");
  }
}

void check_welcome(std::byte welcome, const Hello& hello, const std::string& peer) {
  if (welcome == kWelcome) return;
  if (welcome == kOtherEncryption) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("this rank {} connections that leave its host, {} {}; set GYRE_TLS alike for all ranks",
                    hello.encrypts ? "encrypts" : "does not encrypt", peer, hello.encrypts ? "does not" : "does"));
  }
  throw Error(ErrorCode::kProtocol, fmt::format("{} ended the handshake with byte {} instead of a welcome", peer,
                                                std::to_integer<int>(welcome)));
}

void check_addressee(const Hello& hello, std::uint32_t rank) {
  if (hello.acceptor == rank) return;
  throw Error(ErrorCode::kAuthentication, fmt::format("it wants rank {} and has reached rank {}; an address is used "
                                                      "twice, or redirected on the way",
                                                      hello.acceptor, rank));
}

Transcript prove_to_acceptor(Stream& stream, const JobKey& key, const Hello& hello, Deadline deadline,
                             const std::function<void()>& wait_for_answer) {
  Transcript transcript{encode_opening(hello, make_nonce()), {}};
  write_exactly(stream, transcript.opening, deadline);
  wait_for_answer();
  read_exactly(stream, transcript.answer, deadline);
  write_exactly(stream, check_answer_and_prove(key, transcript.opening, transcript.answer), deadline);
  std::byte welcome{};
  read_exactly(stream, {&welcome, 1}, deadline);
  check_welcome(welcome, hello, stream.peer());
  return transcript;
}

Hello admit_connector(Stream& stream, const JobKey& key, std::uint32_t rank, Deadline deadline) {
  Opening opening;
  read_exactly(stream, opening, deadline);
  const Hello hello = decode_opening(opening);
  const Answer answer = make_answer(key, opening, rank, make_nonce());
  write_exactly(stream, answer, deadline);
  check_addressee(hello, rank);
  Proof proof;
  read_exactly(stream, proof, deadline);
  check_proof(key, opening, answer, proof);
  write_exactly(stream, {&kWelcome, 1}, deadline);
  return hello;
}

}  // namespace gyre::net
