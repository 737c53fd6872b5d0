// Another rank of this host writes records about messages into shared memory: any bytes must arrive as a message that
// was expected, or fail the group.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/group/in_process.h"
#include "gyre/group/messages/internal/mail_segment.h"
#include "gyre/group/messages/point_to_point.h"

namespace {

using namespace gyre;
using group::internal::MailHead;
using group::internal::MailKind;
using group::internal::MailSegment;

constexpr std::uint64_t kChannel = 8;
constexpr std::uint8_t kType = 1;
constexpr std::chrono::seconds kPatience{10};

void receive(group::Group& group) {
  group::PointToPoint messages(group, kChannel, [](std::uint8_t type, std::size_t size_bytes) {
    return fmt::format("{} bytes of type {}", size_bytes, type);
  });
  std::vector<std::byte> first(4);
  std::vector<std::byte> second(100);
  const std::vector<std::byte> sent(10);
  const std::vector<std::byte> long_one(100'000);
  const std::vector<group::MessageHandle> handles = {
      messages.receive(1, 0, kType, first), messages.receive(std::nullopt, 1, kType, second),
      messages.send(1, 0, kType, sent), messages.send(1, 1, kType, long_one)};
  for (const group::MessageHandle& handle : handles) {
    try {
      handle.wait();
    } catch (const Error&) {
      continue;  // Mostly: the peer leaves, or has written nonsense.
    }
  }
}

/// Records that are whole: what they say is the input's.
void write_records(const MailSegment& segment, std::span<const std::byte> input) {
  constexpr std::size_t kHeadBytes = 5;
  group::internal::MailWriter writer(segment.control(1, 0), segment.ring(1, 0), "rank 0");
  while (input.size() >= kHeadBytes) {
    MailHead head;
    head.number = std::to_integer<std::uint64_t>(input[0]);
    head.kind = static_cast<MailKind>(input[1]);
    head.tag = std::to_integer<std::int64_t>(input[2]);
    head.size_bytes = std::to_integer<std::uint64_t>(input[3]);
    head.type = kType;
    const std::size_t wanted = std::to_integer<std::size_t>(input[4]);
    input = input.subspan(kHeadBytes);
    const auto payload = input.first(std::min(wanted, input.size()));
    input = input.subspan(payload.size());
    if (!writer.write(head, payload)) return;
  }
}

/// Bytes where records should be.
void write_bytes(const MailSegment& segment, std::span<const std::byte> input) {
  const auto ring = segment.ring(1, 0);
  if (!input.empty()) std::memcpy(ring.data(), input.data(), std::min(ring.size(), input.size()));
}

void write(group::Group& group, std::span<const std::byte> input) {
  const Deadline deadline = Deadline::after(kPatience);
  const MailSegment segment(group.share_segment(kChannel, MailSegment::bytes_for(2), deadline), 2);
  const bool whole = input.empty() || std::to_integer<int>(input[0]) % 2 == 0;
  if (!input.empty()) input = input.subspan(1);
  // Before rank 0 is there to read, so that it never sees half of it.
  whole ? write_records(segment, input) : write_bytes(segment, input);
  const auto link = group.connect(0, kChannel, deadline);
  group.leave();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  group::run_in_process(2, [&](group::Group& group) { group.rank() == 0 ? receive(group) : write(group, input); });
  return 0;
}
