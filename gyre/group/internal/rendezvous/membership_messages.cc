#include "gyre/group/internal/rendezvous/membership_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "gyre/group/internal/links/addresses.h"
#include "gyre/group/membership_generated.h"

namespace gyre::group {
namespace {

[[noreturn]] void throw_malformed(std::string_view message, std::string_view why) {
  throw Error(ErrorCode::kProtocol, fmt::format("a {} message is malformed: {}", message, why));
}

Bytes finish(flatbuffers::FlatBufferBuilder& builder) {
  const auto* start = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {start, start + builder.GetSize()};
}

flatbuffers::Offset<wire::Member> write_member(flatbuffers::FlatBufferBuilder& builder, const Member& member) {
  std::vector<std::string> endpoints;
  for (const net::Endpoint& endpoint : member.endpoints) endpoints.push_back(net::to_string(endpoint));
  return wire::CreateMember(builder, member.rank, builder.CreateString(member.host_id),
                            builder.CreateString(member.host_name), member.process, member.process_namespace,
                            builder.CreateVectorOfStrings(endpoints));
}

/// Verifies that the bytes are a well-formed T: only then may its accessors be used.
template <typename T>
const T& verified(std::span<const std::byte> bytes, std::string_view message) {
  const auto* start = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(start, bytes.size());
  if (bytes.size() < sizeof(flatbuffers::uoffset_t) || !verifier.VerifyBuffer<T>(nullptr)) {
    throw_malformed(message, "it is not a valid FlatBuffer");
  }
  return *flatbuffers::GetRoot<T>(start);
}

std::string read_name(const flatbuffers::String* text, std::string_view message) {
  if (text == nullptr) throw_malformed(message, "a text is missing");
  if (text->size() > kLongestName) throw_malformed(message, "a text is too long");
  return text->str();
}

Member read_member(const wire::Member* source, std::string_view message) {
  if (source == nullptr || source->endpoints() == nullptr) throw_malformed(message, "a member is incomplete");
  if (source->rank() < 0 || source->rank() >= kMostRanks) throw_malformed(message, "a rank is out of range");
  if (source->endpoints()->size() > kMostEndpoints) throw_malformed(message, "a member has too many endpoints");
  Member member;
  member.rank = source->rank();
  member.host_id = read_name(source->host_id(), message);
  member.host_name = read_name(source->host_name(), message);
  member.process = source->process();
  member.process_namespace = source->process_namespace();
  for (const flatbuffers::String* text : *source->endpoints()) {
    try {
      member.endpoints.push_back(net::parse_endpoint(read_name(text, message)));
    } catch (const Error& error) {
      throw_malformed(message, error.what());
    }
  }
  return member;
}

/// What an endpoint has behind the text of its pattern; numbers of the wire format.
enum class Rest : std::uint8_t { kNothing = 0, kName = 1, kPort = 2 };

constexpr std::size_t kNameDigits = 16;

struct EndpointPattern {
  std::string text;
  Rest rest = Rest::kNothing;

  auto operator<=>(const EndpointPattern&) const = default;
};

struct MemberPattern {
  std::string host_id;
  std::string host_name;
  std::uint64_t process_namespace = 0;
  bool on_rank_zeros_host = false;
  std::vector<EndpointPattern> endpoints;

  auto operator<=>(const MemberPattern&) const = default;
};

/// The values of Members.names and Members.ports, in the order in which they are written or read.
struct Rests {
  std::vector<std::uint64_t> names;
  std::vector<std::uint16_t> ports;
};

/// Splits an endpoint's text where that of the next member may differ, and appends what is cut off to `rests`.
EndpointPattern cut(const net::Endpoint& endpoint, Rests& rests) {
  std::string text = net::to_string(endpoint);
  if (endpoint.kind == net::Endpoint::Kind::kTcp) {
    rests.ports.push_back(endpoint.port);
    text.resize(text.rfind(':') + 1);
    return {std::move(text), Rest::kPort};
  }
  const std::size_t start = text.size() - std::min(text.size(), kNameDigits);
  const std::string_view digits = std::string_view(text).substr(start);
  const bool lower_case = std::ranges::none_of(digits, [](char letter) { return letter >= 'A' && letter <= 'F'; });
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.begin(), digits.end(), value, 16);
  if (!lower_case || digits.size() < kNameDigits || failure != std::errc{} || end != digits.end())
    return {std::move(text), Rest::kNothing};
  rests.names.push_back(value);
  text.resize(start);
  return {std::move(text), Rest::kName};
}

flatbuffers::Offset<wire::MemberPattern> write_pattern(flatbuffers::FlatBufferBuilder& builder,
                                                       const MemberPattern& pattern) {
  std::vector<flatbuffers::Offset<wire::EndpointPattern>> endpoints;
  for (const EndpointPattern& endpoint : pattern.endpoints) {
    endpoints.push_back(wire::CreateEndpointPattern(builder, builder.CreateSharedString(endpoint.text),
                                                    static_cast<std::uint8_t>(endpoint.rest)));
  }
  return wire::CreateMemberPattern(builder, builder.CreateSharedString(pattern.host_id),
                                   builder.CreateSharedString(pattern.host_name), pattern.process_namespace,
                                   pattern.on_rank_zeros_host, builder.CreateVector(endpoints));
}

MemberPattern read_pattern(const wire::MemberPattern* source) {
  if (source == nullptr || source->endpoints() == nullptr) throw_malformed("Members", "a pattern is incomplete");
  if (source->endpoints()->size() > kMostEndpoints) throw_malformed("Members", "a member has too many endpoints");
  MemberPattern pattern;
  pattern.host_id = read_name(source->host_id(), "Members");
  pattern.host_name = read_name(source->host_name(), "Members");
  pattern.process_namespace = source->process_namespace();
  pattern.on_rank_zeros_host = source->on_rank_zeros_host();
  for (const wire::EndpointPattern* endpoint : *source->endpoints()) {
    if (endpoint->rest() > static_cast<std::uint8_t>(Rest::kPort)) throw_malformed("Members", "an endpoint is unknown");
    pattern.endpoints.push_back({read_name(endpoint->text(), "Members"), static_cast<Rest>(endpoint->rest())});
  }
  return pattern;
}

/// Takes values one after the other from a peer's vector, which may be missing or too short.
template <typename T>
class Values {
 public:
  explicit Values(const flatbuffers::Vector<T>* values) : values_(values) {}

  T next() {
    if (next_ >= size()) throw_malformed("Members", "parts of endpoints are missing");
    return values_->Get(next_++);
  }
  bool all_read() const { return next_ == size(); }

 private:
  flatbuffers::uoffset_t size() const { return values_ == nullptr ? 0 : values_->size(); }

  const flatbuffers::Vector<T>* values_;
  flatbuffers::uoffset_t next_ = 0;
};

net::Endpoint complete(const EndpointPattern& pattern, Values<std::uint64_t>& names, Values<std::uint16_t>& ports) {
  std::string text = pattern.text;
  if (pattern.rest == Rest::kName) text += fmt::format("{:016x}", names.next());
  if (pattern.rest == Rest::kPort) text += std::to_string(ports.next());
  try {
    return net::parse_endpoint(text);
  } catch (const Error& error) {
    throw_malformed("Members", error.what());
  }
}

}  // namespace

Bytes encode_join(const Join& join) {
  flatbuffers::FlatBufferBuilder builder;
  const auto member = write_member(builder, join.member);
  builder.Finish(wire::CreateJoin(builder, join.size, member));
  return finish(builder);
}

Bytes encode_membership(const Membership& membership) {
  flatbuffers::FlatBufferBuilder builder;
  const auto* digest = reinterpret_cast<const std::uint8_t*>(membership.digest.data());
  const auto digest_vector = builder.CreateVector(digest, membership.digest.size());
  const auto address = builder.CreateString(membership.rank_zero_address);
  flatbuffers::Offset<wire::Member> source;
  if (membership.source) source = write_member(builder, *membership.source);
  builder.Finish(wire::CreateMembership(builder, membership.epoch, digest_vector, address, source));
  return finish(builder);
}

Bytes encode_members(const Members& members) {
  std::map<MemberPattern, std::uint16_t> index_of_pattern;
  std::vector<flatbuffers::Offset<wire::MemberPattern>> patterns;
  std::vector<std::uint16_t> pattern_of;
  std::vector<std::int32_t> processes;
  Rests rests;
  flatbuffers::FlatBufferBuilder builder;
  for (const Member& member : members.members) {
    MemberPattern pattern{member.host_id,
                          member.host_name,
                          member.process_namespace,
                          members.on_rank_zeros_host.at(pattern_of.size()),
                          {}};
    for (const net::Endpoint& endpoint : member.endpoints) pattern.endpoints.push_back(cut(endpoint, rests));
    const auto [entry, is_new] =
        index_of_pattern.try_emplace(std::move(pattern), static_cast<std::uint16_t>(patterns.size()));
    if (is_new) patterns.push_back(write_pattern(builder, entry->first));
    pattern_of.push_back(entry->second);
    processes.push_back(member.process);
  }
  builder.Finish(wire::CreateMembersDirect(builder, &patterns, &pattern_of, &processes, &rests.names, &rests.ports));
  return finish(builder);
}

Bytes encode_failure(const Error& failure) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(failure.what()).substr(0, kLongestFailureText));
  builder.Finish(wire::CreateFailure(builder, static_cast<int>(failure.code()), text));
  return finish(builder);
}

Bytes encode_left(std::span<const Exit> exits) {
  struct Kind {
    Exit first;
    std::vector<std::uint16_t> ranks;
  };
  std::vector<Kind> kinds;
  std::map<std::pair<std::uint64_t, bool>, std::size_t> index_of_kind;
  for (const Exit& exit : exits) {
    const auto [entry, is_new] = index_of_kind.try_emplace({exit.process_set, exit.lost}, kinds.size());
    if (is_new) kinds.push_back({exit, {}});
    kinds[entry->second].ranks.push_back(static_cast<std::uint16_t>(exit.rank));
  }
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<wire::Exits>> entries;
  for (const Kind& kind : kinds) {
    entries.push_back(wire::CreateExitsDirect(builder, kind.first.process_set, kind.first.lost, &kind.ranks));
  }
  builder.Finish(wire::CreateLeftDirect(builder, &entries));
  return finish(builder);
}

Join decode_join(std::span<const std::byte> bytes) {
  const auto& source = verified<wire::Join>(bytes, "Join");
  return {source.size(), read_member(source.member(), "Join")};
}

Membership decode_membership(std::span<const std::byte> bytes) {
  const auto& source = verified<wire::Membership>(bytes, "Membership");
  Membership membership;
  membership.epoch = source.epoch();
  if (source.digest() == nullptr || source.digest()->size() != membership.digest.size()) {
    throw_malformed("Membership", "its digest is missing or has another length");
  }
  const auto digest = std::as_bytes(std::span(source.digest()->data(), source.digest()->size()));
  std::ranges::copy(digest, membership.digest.begin());
  membership.rank_zero_address = read_name(source.rank_zero_address(), "Membership");
  if (source.source() != nullptr) membership.source = read_member(source.source(), "Membership");
  return membership;
}

Members decode_members(std::span<const std::byte> bytes, int size) {
  const auto& source = verified<wire::Members>(bytes, "Members");
  const auto count = static_cast<flatbuffers::uoffset_t>(size);
  if (source.pattern_of() == nullptr || source.processes() == nullptr || source.patterns() == nullptr ||
      source.pattern_of()->size() != count || source.processes()->size() != count ||
      source.patterns()->size() > count) {
    throw_malformed("Members", "it does not have one member for each rank");
  }
  std::vector<MemberPattern> patterns;
  for (const wire::MemberPattern* pattern : *source.patterns()) patterns.push_back(read_pattern(pattern));
  Values names(source.names());
  Values ports(source.ports());
  Members members;
  for (flatbuffers::uoffset_t rank = 0; rank < count; ++rank) {
    const std::size_t index = source.pattern_of()->Get(rank);
    if (index >= patterns.size()) throw_malformed("Members", "a member has no pattern");
    const MemberPattern& pattern = patterns[index];
    Member member;
    member.rank = static_cast<int>(rank);
    member.host_id = pattern.host_id;
    member.host_name = pattern.host_name;
    member.process_namespace = pattern.process_namespace;
    member.process = source.processes()->Get(rank);
    for (const EndpointPattern& endpoint : pattern.endpoints) {
      member.endpoints.push_back(complete(endpoint, names, ports));
    }
    members.members.push_back(std::move(member));
    members.on_rank_zeros_host.push_back(pattern.on_rank_zeros_host);
  }
  if (!names.all_read() || !ports.all_read()) throw_malformed("Members", "it has parts of endpoints that nobody has");
  return members;
}

Error decode_failure(std::span<const std::byte> bytes) {
  const auto& source = verified<wire::Failure>(bytes, "Failure");
  if (source.message() == nullptr || source.message()->size() > kLongestFailureText) {
    throw_malformed("Failure", "its text is missing or too long");
  }
  return {error_code_from_number(source.code()), source.message()->str()};
}

std::vector<Exit> decode_left(std::span<const std::byte> bytes, int size) {
  const auto& source = verified<wire::Left>(bytes, "Left");
  std::vector<Exit> exits;
  if (source.exits() == nullptr) throw_malformed("Left", "it names no rank");
  for (const wire::Exits* entry : *source.exits()) {
    if (entry->ranks() == nullptr) throw_malformed("Left", "it names no rank");
    if (entry->lost() && entry->process_set() != 0) throw_malformed("Left", "a rank is lost to a process set alone");
    if (entry->ranks()->size() > kMostExits - exits.size()) throw_malformed("Left", "it names too many ranks");
    for (const int rank : *entry->ranks()) {
      if (rank >= size) throw_malformed("Left", "a rank is out of range");
      exits.push_back({rank, entry->process_set(), entry->lost()});
    }
  }
  if (exits.empty()) throw_malformed("Left", "it names no rank");
  return exits;
}

Member as_seen_from(const std::string& rank_zero_address, Member member, bool on_rank_zeros_host) {
  if (rank_zero_address.empty() || !on_rank_zeros_host) return member;
  for (net::Endpoint& endpoint : member.endpoints) {
    const bool leads_nowhere = endpoint.kind == net::Endpoint::Kind::kTcp && is_only_local(endpoint.host);
    if (leads_nowhere) endpoint.host = rank_zero_address;
  }
  return member;
}

std::vector<Member> as_seen_from(const std::string& rank_zero_address, Members members) {
  for (std::size_t rank = 0; rank < members.members.size(); ++rank) {
    members.members[rank] =
        as_seen_from(rank_zero_address, std::move(members.members[rank]), members.on_rank_zeros_host[rank]);
  }
  return std::move(members.members);
}

}  // namespace gyre::group
