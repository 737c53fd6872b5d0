// Membership messages come from peers: what is not exactly right must be refused, whatever the bytes.
#include "gyre/group/internal/rendezvous/membership_messages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
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
  const Membership membership = decode_membership(encode_membership({77, sha256({}), "10.0.0.1", example(1)}));
  EXPECT_EQ(membership.epoch, 77U);
  EXPECT_EQ(membership.digest, sha256({}));
  EXPECT_EQ(membership.rank_zero_address, "10.0.0.1");
  expect_equal(membership.source.value(), example(1));
  EXPECT_FALSE(decode_membership(encode_membership({78, {}, {}, {}})).source);
  const Members members = decode_members(encode_members({{example(0), example(1)}, {true, false}}), 2);
  ASSERT_EQ(members.members.size(), 2U);
  expect_equal(members.members[1], example(1));
  EXPECT_EQ(members.on_rank_zeros_host, (std::vector<bool>{true, false}));
  const Error failure = decode_failure(encode_failure(Error(ErrorCode::kMismatch, "shapes differ")));
  EXPECT_EQ(failure.code(), ErrorCode::kMismatch);
  EXPECT_STREQ(failure.what(), "shapes differ");
  const std::vector<Exit> exits{{5, 0}, {2, 77}};
  EXPECT_EQ(decode_left(encode_left(exits), 6), exits);
}

std::string random_text(Random& random, const std::string& letters, std::uint64_t most) {
  std::string text;
  for (std::uint64_t left = random.below(most + 1); left > 0; --left) text += letters[random.below(letters.size())];
  return text;
}

/// Everything that parse_endpoint takes, and often what looks like ours.
net::Endpoint random_endpoint(Random& random) {
  const std::array<const char*, 5> hosts{"127.0.0.1", "::", "10.0.0.7", "fe80::1", "node7.example"};
  const auto port = static_cast<std::uint16_t>(random.next_u32());
  switch (random.below(4)) {
    case 0: return {net::Endpoint::Kind::kTcp, hosts.at(random.below(hosts.size())), port};
    case 1: return {net::Endpoint::Kind::kUnix, fmt::format("@gyre-link-{:016x}", random.next_u64()), 0};
    case 2: return {net::Endpoint::Kind::kUnix, "@x" + random_text(random, "0123456789abcdefABF-+", 30), 0};
    default: return {net::Endpoint::Kind::kUnix, "/x" + random_text(random, "0a1b2c3 :[]@", 90), 0};
  }
}

TEST(MembershipMessages, members_of_any_kind_are_decoded_as_they_were) {
  const std::uint64_t seed = 26;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    const int size = 1 + static_cast<int>(random.below(80));
    const std::uint64_t hosts = 1 + random.below(static_cast<std::uint64_t>(size));
    Members members;
    for (int rank = 0; rank < size; ++rank) {
      Member member;
      member.rank = rank;
      const std::uint64_t host = random.below(hosts);
      member.host_id = fmt::format("host{}", host);
      member.host_name = random_text(random, "abc", 1);
      member.process = static_cast<pid_t>(random.next_u32() >> 1);
      member.process_namespace = random.below(3) == 0 ? random.next_u64() : host;
      for (std::uint64_t left = random.below(kMostEndpoints + 1); left > 0; --left) {
        member.endpoints.push_back(random_endpoint(random));
      }
      members.members.push_back(member);
      members.on_rank_zeros_host.push_back(random.below(2) == 1);
    }
    const Members decoded = decode_members(encode_members(members), size);
    ASSERT_EQ(decoded.members.size(), members.members.size());
    EXPECT_EQ(decoded.on_rank_zeros_host, members.on_rank_zeros_host);
    for (std::size_t i = 0; i < members.members.size(); ++i) expect_equal(decoded.members[i], members.members[i]);
  }
}

TEST(MembershipMessages, a_member_takes_few_bytes_where_a_host_has_many) {
  Members members;
  for (int rank = 0; rank < 8 * 256; ++rank) {
    Member member = example(rank);
    member.host_id = fmt::format("3cd52a3e-0f2e-4c39-9d9e-0a6a3c9a7f10/{}", rank / 8);
    member.endpoints = {net::parse_endpoint(fmt::format("unix:@gyre-link-{:016x}", rank * 0x9e3779b97f4a7c15U)),
                        net::parse_endpoint(fmt::format("tcp:10.0.{}.1:{}", rank / 8, 40'000 + rank % 1'000))};
    members.members.push_back(member);
    members.on_rank_zeros_host.push_back(rank < 8);
  }
  EXPECT_LT(encode_members(members).size(), 45 * members.members.size());  // Each a text, it was five times as much.
  EXPECT_LT(encode_membership({1, {}, "10.0.0.1", members.members[1]}).size(), 400U);
  std::vector<Exit> exits;
  for (int rank = 0; rank < static_cast<int>(kMostExits); ++rank) exits.push_back({rank, 7});
  EXPECT_LT(encode_left(exits).size(), 2 * kMostExits + 100);
}

TEST(MembershipMessages, a_rank_elsewhere_reaches_rank_zeros_host_as_it_reached_rank_zero) {
  Members members{{example(0), example(1), example(2)}, {true, true, false}};
  const std::array<const char*, 3> own{"tcp:[::1]:80", "tcp:10.0.0.9:81", "tcp:127.0.0.1:82"};
  const auto tcp = [](const Member& member) { return net::to_string(member.endpoints.at(1)); };
  for (std::size_t i = 0; i < own.size(); ++i) members.members[i].endpoints[1] = net::parse_endpoint(own.at(i));
  const std::vector<Member> elsewhere = as_seen_from("192.168.7.1", members);
  EXPECT_EQ(tcp(elsewhere[0]), "tcp:192.168.7.1:80");
  EXPECT_EQ(tcp(elsewhere[1]), own[1]);  // It was given its interfaces.
  EXPECT_EQ(tcp(elsewhere[2]), own[2]);  // Its own affair: it came over the network.
  EXPECT_EQ(elsewhere[0].endpoints[0], members.members[0].endpoints[0]);
  const std::vector<Member> beside = as_seen_from("", members);
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(tcp(beside[i]), own.at(i));
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
  const Bytes two = encode_members({{example(0), example(1)}, {false, false}});
  EXPECT_EQ(code_of([&] { decode_members(two, 3); }), ErrorCode::kProtocol);
  EXPECT_EQ(code_of([&] { decode_members(two, 1); }), ErrorCode::kProtocol);
  EXPECT_EQ(code_of([&] { decode_members(encode_members({{member}, {false}}), 1); }), ErrorCode::kProtocol);
  EXPECT_EQ(code_of([&] { decode_membership(encode_membership({1, {}, {}, member})); }), ErrorCode::kProtocol);
  EXPECT_EQ(code_of([&] { decode_membership(encode_left(std::vector<Exit>{{0, 0}})); }), ErrorCode::kProtocol);
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
  const std::vector<Bytes> good{encode_join({3, example(2)}), encode_membership({77, {}, "::1", example(1)}),
                                encode_members({{example(0), example(1)}, {true, false}}),
                                encode_failure(Error(ErrorCode::kMismatch, "shapes differ")),
                                encode_left(std::vector<Exit>{{5, 0}, {1, 9}})};
  const auto decode_all = [](std::span<const std::byte> bytes) {
    int refused = 0;
    refused += code_of([&] { decode_join(bytes); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_membership(bytes); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_members(bytes, 2); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_failure(bytes); }) == ErrorCode::kProtocol;
    refused += code_of([&] { decode_left(bytes, 8); }) == ErrorCode::kProtocol;
    return refused;
  };
  EXPECT_EQ(decode_all({}), 5);
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
