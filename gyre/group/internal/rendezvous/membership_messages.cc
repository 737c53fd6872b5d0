#include "gyre/group/internal/rendezvous/membership_messages.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

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

}  // namespace

Bytes encode_join(const Join& join) {
  flatbuffers::FlatBufferBuilder builder;
  const auto member = write_member(builder, join.member);
  builder.Finish(wire::CreateJoin(builder, join.size, member));
  return finish(builder);
}

Bytes encode_membership(const Membership& membership) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<wire::Member>> members;
  for (const Member& member : membership.members) members.push_back(write_member(builder, member));
  const auto vector = builder.CreateVector(members);
  builder.Finish(wire::CreateMembership(builder, membership.epoch, vector));
  return finish(builder);
}

Bytes encode_failure(const Error& failure) {
  flatbuffers::FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(failure.what()).substr(0, kLongestFailureText));
  builder.Finish(wire::CreateFailure(builder, static_cast<int>(failure.code()), text));
  return finish(builder);
}

Bytes encode_left(std::span<const Exit> exits) {
  flatbuffers::FlatBufferBuilder builder;
  std::vector<wire::Exit> entries;
  for (const Exit& exit : exits) entries.emplace_back(exit.rank, exit.process_set, exit.lost);
  builder.Finish(wire::CreateLeft(builder, builder.CreateVectorOfStructs(entries)));
  return finish(builder);
}

Join decode_join(std::span<const std::byte> bytes) {
  const auto& source = verified<wire::Join>(bytes, "Join");
  return {source.size(), read_member(source.member(), "Join")};
}

Membership decode_membership(std::span<const std::byte> bytes, int size) {
  const auto& source = verified<wire::Membership>(bytes, "Membership");
  if (source.members() == nullptr || source.members()->size() != static_cast<flatbuffers::uoffset_t>(size)) {
    throw_malformed("Membership", "it does not have one member for each rank");
  }
  Membership membership{source.epoch(), {}};
  for (const wire::Member* entry : *source.members()) {
    membership.members.push_back(read_member(entry, "Membership"));
    if (membership.members.back().rank + 1 != static_cast<int>(membership.members.size())) {
      throw_malformed("Membership", "its members are not in the order of their ranks");
    }
  }
  return membership;
}

Error decode_failure(std::span<const std::byte> bytes) {
  const auto& source = verified<wire::Failure>(bytes, "Failure");
  if (source.message() == nullptr || source.message()->size() > kLongestFailureText) {
    throw_malformed("Failure", "its text is missing or too long");
  }
  // A newer Gyre may know more codes than this one.
  const auto code = static_cast<ErrorCode>(source.code());
  return {error_code_name(code) == "UNKNOWN" ? ErrorCode::kInternal : code, source.message()->str()};
}

std::vector<Exit> decode_left(std::span<const std::byte> bytes, int size) {
  const auto& source = verified<wire::Left>(bytes, "Left");
  if (source.exits() == nullptr || source.exits()->size() == 0) throw_malformed("Left", "it names no rank");
  if (source.exits()->size() > kMostExits) throw_malformed("Left", "it names too many ranks");
  std::vector<Exit> exits;
  for (const wire::Exit* entry : *source.exits()) {
    if (entry->rank() < 0 || entry->rank() >= size) throw_malformed("Left", "a rank is out of range");
    if (entry->lost() && entry->process_set() != 0) throw_malformed("Left", "a rank is lost to a process set alone");
    exits.push_back({entry->rank(), entry->process_set(), entry->lost()});
  }
  return exits;
}

}  // namespace gyre::group
