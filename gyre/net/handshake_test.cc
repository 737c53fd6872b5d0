// The handshake is the only wall between a job and everybody else on the network.
#include "gyre/net/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/random.h"

namespace gyre::net {
namespace {

using std::chrono::milliseconds;

const Hello kHello{.rank = 3, .acceptor = 1, .purpose = 2, .channel = 77, .epoch = 5, .encrypts = true};

Deadline soon() { return Deadline::after(milliseconds(20'000)); }

Nonce nonce_of(int value) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(value));
  return nonce;
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error was thrown";
  return ErrorCode::kInternal;
}

struct Outcome {
  std::exception_ptr connector;
  std::exception_ptr acceptor;
  Hello hello;
};

Outcome shake_hands(const JobKey& connector_key, const JobKey& acceptor_key, std::uint32_t reached = kHello.acceptor) {
  auto [connector, acceptor] = make_stream_pair({"the acceptor", "the connector"});
  Outcome outcome;
  std::thread other([&, stream = std::move(acceptor)]() mutable {
    try {
      outcome.hello = admit_connector(*stream, acceptor_key, reached, soon());
    } catch (...) {
      outcome.acceptor = std::current_exception();
    }
    stream.reset();
  });
  try {
    prove_to_acceptor(*connector, connector_key, kHello, soon());
  } catch (...) {
    outcome.connector = std::current_exception();
  }
  connector.reset();
  other.join();
  return outcome;
}

TEST(Handshake, two_sides_with_one_key_agree_on_the_hello) {
  const JobKey key = make_random_key();
  const Outcome outcome = shake_hands(key, key);
  EXPECT_EQ(outcome.connector, nullptr);
  EXPECT_EQ(outcome.acceptor, nullptr);
  EXPECT_EQ(outcome.hello, kHello);
}

TEST(Handshake, an_acceptor_that_is_not_the_wanted_rank_says_so_to_both_sides) {
  const JobKey key = make_random_key();
  for (const std::uint32_t reached : {0U, 2U, 3U}) {  // The last: the connector itself, through a loopback.
    const Outcome outcome = shake_hands(key, key, reached);
    ASSERT_NE(outcome.connector, nullptr);
    try {
      std::rethrow_exception(outcome.connector);
    } catch (const WrongAcceptor& error) {
      EXPECT_EQ(error.reached(), reached);
      EXPECT_EQ(error.code(), ErrorCode::kAuthentication);
    }
    ASSERT_NE(outcome.acceptor, nullptr);
    EXPECT_EQ(code_of([&] { std::rethrow_exception(outcome.acceptor); }), ErrorCode::kAuthentication);
  }
}

TEST(Handshake, a_refusal_is_neither_an_acceptance_nor_a_strangers_answer) {
  const JobKey key = make_random_key();
  const Opening opening = encode_opening(kHello, nonce_of(1));
  const auto refused = [&](const JobKey& by, std::uint32_t rank) {
    return code_of([&] { check_answer_and_prove(key, opening, make_refusal(by, opening, rank, nonce_of(2))); });
  };
  EXPECT_EQ(refused(key, kHello.acceptor), ErrorCode::kPeerLost);
  EXPECT_EQ(refused(key, 2), ErrorCode::kAuthentication);
  EXPECT_EQ(refused(make_random_key(), kHello.acceptor), ErrorCode::kAuthentication);
}

TEST(Handshake, nobody_between_the_sides_can_rename_one_of_them) {
  const JobKey key = make_random_key();
  const Opening opening = encode_opening(kHello, nonce_of(1));
  Hello renamed = kHello;
  renamed.acceptor = 2;
  const Opening changed = encode_opening(renamed, nonce_of(1));
  // To rank 2 it looks like a connection to rank 2, but its answer is none to the opening that the connector sent.
  EXPECT_EQ(code_of([&] { check_answer_and_prove(key, opening, make_answer(key, changed, 2, nonce_of(2))); }),
            ErrorCode::kAuthentication);
  Answer answer = make_answer(key, opening, 2, nonce_of(2));
  answer[32] = std::byte{1};  // Rank 2's answer with rank 1's name in it.
  EXPECT_EQ(code_of([&] { check_answer_and_prove(key, opening, answer); }), ErrorCode::kAuthentication);
  // Rank 2 gets a proof that was made for rank 1.
  const Proof proof = check_answer_and_prove(key, opening, make_answer(key, opening, 1, nonce_of(2)));
  EXPECT_EQ(code_of([&] { check_proof(key, changed, make_answer(key, changed, 2, nonce_of(2)), proof); }),
            ErrorCode::kAuthentication);
}

TEST(Handshake, a_side_that_encrypts_otherwise_is_named_to_the_connector) {
  Hello plain = kHello;
  plain.encrypts = false;
  check_welcome(kWelcome, kHello, "rank 0");
  EXPECT_EQ(code_of([&] { check_welcome(kOtherEncryption, kHello, "rank 0"); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([&] { check_welcome(kOtherEncryption, plain, "rank 0"); }), ErrorCode::kMismatch);
  EXPECT_EQ(code_of([&] { check_welcome(std::byte{0}, kHello, "rank 0"); }), ErrorCode::kProtocol);
}

TEST(Handshake, a_connector_sees_that_the_acceptor_has_another_key_and_sends_no_proof) {
  const Outcome outcome = shake_hands(make_random_key(), make_random_key());
  ASSERT_NE(outcome.connector, nullptr);
  EXPECT_EQ(code_of([&] { std::rethrow_exception(outcome.connector); }), ErrorCode::kAuthentication);
  ASSERT_NE(outcome.acceptor, nullptr);
  EXPECT_EQ(code_of([&] { std::rethrow_exception(outcome.acceptor); }), ErrorCode::kPeerLost);
}

TEST(Handshake, the_messages_have_the_documented_bytes) {
  const Opening opening = encode_opening(kHello, nonce_of(9));
  ByteReader reader(opening, "opening");
  EXPECT_EQ(reader.text(8), "GYRELINK");
  EXPECT_EQ(reader.u32(), 4U);
  EXPECT_EQ(reader.u16(), 1U);
  EXPECT_EQ(reader.u16(), 2U);
  EXPECT_EQ(reader.u32(), 3U);
  EXPECT_EQ(reader.u32(), 1U);
  EXPECT_EQ(reader.u64(), 77U);
  EXPECT_EQ(reader.u64(), 5U);
  EXPECT_TRUE(std::ranges::equal(reader.bytes(32), nonce_of(9)));

  const JobKey key = make_random_key();
  const Answer answer = make_answer(key, opening, 6, nonce_of(8));
  ByteWriter transcript;
  transcript.text("acceptor");
  transcript.bytes(opening);
  transcript.bytes(nonce_of(8));
  transcript.u32(6);
  EXPECT_TRUE(std::ranges::equal(std::span(answer).first(32), nonce_of(8)));
  EXPECT_EQ(ByteReader(std::span(answer).subspan(32), "answer").u32(), 6U);
  EXPECT_TRUE(std::ranges::equal(std::span(answer).subspan(36), hmac_sha256(key, transcript.result())));
}

TEST(Handshake, a_changed_byte_anywhere_is_refused) {
  const JobKey key = make_random_key();
  const Opening opening = encode_opening(kHello, nonce_of(1));
  const Answer answer = make_answer(key, opening, kHello.acceptor, nonce_of(2));
  const Proof proof = check_answer_and_prove(key, opening, answer);
  check_proof(key, opening, answer, proof);
  for (std::size_t i = 0; i < kOpeningBytes; ++i) {
    Opening changed = opening;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(code_of([&] { check_answer_and_prove(key, changed, answer); }), ErrorCode::kAuthentication);
    EXPECT_EQ(code_of([&] { check_proof(key, changed, answer, proof); }), ErrorCode::kAuthentication);
  }
  for (std::size_t i = 0; i < kAnswerBytes; ++i) {
    Answer changed = answer;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(code_of([&] { check_answer_and_prove(key, opening, changed); }), ErrorCode::kAuthentication);
  }
  for (std::size_t i = 0; i < kProofBytes; ++i) {
    Proof changed = proof;
    changed[i] ^= std::byte{1};
    EXPECT_EQ(code_of([&] { check_proof(key, opening, answer, changed); }), ErrorCode::kAuthentication);
  }
}

TEST(Handshake, an_answer_cannot_be_echoed_as_a_proof) {
  const JobKey key = make_random_key();
  const Opening opening = encode_opening(kHello, nonce_of(1));
  const Answer answer = make_answer(key, opening, kHello.acceptor, nonce_of(2));
  Proof echoed;
  std::copy(answer.begin() + 36, answer.end(), echoed.begin());
  EXPECT_EQ(code_of([&] { check_proof(key, opening, answer, echoed); }), ErrorCode::kAuthentication);
}

TEST(Handshake, a_recorded_connection_cannot_be_replayed) {
  const JobKey key = make_random_key();
  const Opening opening = encode_opening(kHello, nonce_of(1));
  const Answer recorded = make_answer(key, opening, kHello.acceptor, nonce_of(2));
  const Proof proof = check_answer_and_prove(key, opening, recorded);
  const Answer fresh = make_answer(key, opening, kHello.acceptor, nonce_of(3));
  EXPECT_EQ(code_of([&] { check_proof(key, opening, fresh, proof); }), ErrorCode::kAuthentication);
}

TEST(Handshake, an_acceptor_refuses_garbage_and_openings_cut_at_every_byte) {
  const std::uint64_t seed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const JobKey key = make_random_key();
  for (std::size_t length = 0; length <= kOpeningBytes; ++length) {
    auto [connector, acceptor] = make_stream_pair({"a", "c"});
    Bytes bytes(length);
    for (std::byte& value : bytes) value = static_cast<std::byte>(random.next_u32());
    write_exactly(*connector, bytes, soon());
    connector.reset();
    const ErrorCode code = code_of([&, &stream = *acceptor] { admit_connector(stream, key, 1, soon()); });
    EXPECT_EQ(code, length == kOpeningBytes ? ErrorCode::kProtocol : ErrorCode::kPeerLost);
  }
  const Opening opening = encode_opening(kHello, nonce_of(1));
  for (std::size_t length = 0; length < kOpeningBytes; ++length) {
    auto [connector, acceptor] = make_stream_pair({"a", "c"});
    write_exactly(*connector, std::span(opening).first(length), soon());
    connector.reset();
    EXPECT_EQ(code_of([&, &stream = *acceptor] { admit_connector(stream, key, 1, soon()); }), ErrorCode::kPeerLost);
  }
}

TEST(Handshake, a_side_that_says_nothing_ends_in_a_timeout) {
  auto [connector, acceptor] = make_stream_pair({"the acceptor", "the connector"});
  const Deadline short_time = Deadline::after(milliseconds(20));
  EXPECT_EQ(code_of([&, &stream = *acceptor] { admit_connector(stream, make_random_key(), 1, short_time); }),
            ErrorCode::kTimeout);
  EXPECT_EQ(code_of([&, &stream = *connector] { prove_to_acceptor(stream, make_random_key(), kHello, short_time); }),
            ErrorCode::kTimeout);
}

}  // namespace
}  // namespace gyre::net
