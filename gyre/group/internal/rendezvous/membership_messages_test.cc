// Membership messages come from peers: what is not exactly right must be refused, whatever the bytes.
#include "gyre/group/internal/rendezvous/membership_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gyre/base/random.h"

namespace gyre::group {
namespace {

Member example(int rank) {
  Member member;
  member.rank = rank;
  member.host_id = "boot/4026531840";
  member.host_name = "node7";
  member.process = 4711 + rank;
  member.process_namespace = 42;
  member.endpoints = {net::parse_endpoint("unix:@gyre-link-1"), net::parse_endpoint("tcp:[::1]:80")};
  return member;
}

void expect_equal(const Member& a, const Member& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.host_id, b.host_id);
  EXPECT_EQ(a.host_name, b.host_name);
  EXPECT_EQ(a.process, b.process);
  EXPECT_EQ(a.process_namespace, b.process_namespace);
  EXPECT_EQ(a.endpoints, b.endpoints);
}

ErrorCode code_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(MembershipMessages, what_is_encoded_is_decoded) {
  const Join join = decode_join(encode_join({3, example(2)}));
  EXPECT_EQ(join.size, 3);
  expect_equal(join.member, example(2));
  const Membership membership = decode_membership(encode_membership({77, {example(0), example(1)}}), 2);
  EXPECT_EQ(membership.epoch, 77U);
  ASSERT_EQ(membership.members.size(), 2U);
  expect_equal(membership.members[1], example(1));
  const Error failure = decode_failure(encode_failure(Error(ErrorCode::kMismatch, "shapes differ")));
  EXPECT_EQ(failure.code(), ErrorCode::kMismatch);
  EXPECT_STREQ(failure.what(), "shapes differ");
  const std::vector<Exit> exits{{5, 0}, {2, 77}};
  EXPECT_EQ(decode_left(encode_left(exits), 6), exits);
}

TEST(MembershipMessages, limits_and_order_are_checked) {
  Member member = example(0);
  member.rank = kMostRanks;
  EXPECT_EQ(code_of([&] { decode_join(encode_join({1, member})); }), ErrorCode::kProtocol);
  member = example(0);
  member.host_name = std::string(kLongestName + 1, 'h');
  EXPECT_EQ(code_of([&] { decode_join(encode_join({1, member})); }), ErrorCode::kProtocol);
  member = example(0);
  member.endpoints.assign(kMostEndpoints + 1, net::parse_endpoint("unix:@x"));
  EXPECT_EQ(code_of([&] { decode_join(encode_join({1, member})); }), ErrorCode::kProtocol);
  member = example(0);
  member.endpoints = {{net::Endpoint::Kind::kUnix, "no endpoint", 0}};
  EXPECT_EQ(code_of([&] { decode_join(encode_join({1, member})); }), ErrorCode::kProtocol);
  const Bytes two = encode_membership({1, {example(0), example(1)}});
  EXPECT_EQ(code_of([&] { decode_membership(two, 3); }), ErrorCode::kProtocol);
  const Bytes swapped = encode_membership({1, {example(1), example(0)}});
  EXPECT_EQ(code_of([&] { decode_membership(swapped, 2); }), ErrorCode::kProtocol);
  for (const std::vector<Exit>& exits : {std::vector<Exit>{}, {{-1, 0}}, {{0, 0}, {6, 0}}, {kMostExits + 1, Exit{}}}) {
    EXPECT_EQ(code_of([&] { decode_left(encode_left(exits), 6); }), ErrorCode::kProtocol);
  }
}

TEST(MembershipMessages, long_reasons_are_cut_and_unknown_codes_are_internal) {
  const Error cut = decode_failure(encode_failure(Error(ErrorCode::kIo, std::string(100'000, 'x'))));
  EXPECT_EQ(std::string(cut.what()).size(), kLongestFailureText);
  const Error unknown = decode_failure(encode_failure(Error(static_cast<ErrorCode>(999), "from the future")));
  EXPECT_EQ(unknown.code(), ErrorCode::kInternal);
}

TEST(MembershipMessages, truncated_and_damaged_bytes_are_refused_or_harmless) {
  const std::uint64_t seed = 31;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  const std::vector<Bytes> good{encode_join({3, example(2)}), encode_membership({77, {example(0), example(1)}}),
                                encode_failure(Error(ErrorCode::kMismatch, "shapes differ")),
                                encode_left(std::vector<Exit>{{5, 0}, {1, 9}})};
  const auto decode_all = [](std::span<const std::byte> bytes) {
    int refused = 0;
    refused += code_of([&] { decode_join(bytes); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_membership(bytes, 2); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_failure(bytes); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_left(bytes, 8); }) == ErrorCode::kProtocol;
    return refused;
  };
  EXPECT_EQ(decode_all({}), 4);
  for (const Bytes& bytes : good) {
    // Exactly as large as its content, so that an address sanitizer sees a read beyond its end.
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const Bytes truncated(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      decode_all(truncated);
    }
    for (int round = 0; round < 2'000; ++round) {
      Bytes damaged = bytes;
      for (int change = 0; change < 3; ++change)
        damaged[random.below(damaged.size())] = static_cast<std::byte>(random.next_u32());
      decode_all(damaged);
    }
  }
}

}  // namespace
}  // namespace gyre::group
