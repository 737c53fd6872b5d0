// The other end of a link between hosts sends frames about messages: any bytes must arrive as a message that was
// expected, or fail the group.
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/group/in_process.h"
#include "gyre/group/messages/point_to_point.h"
#include "gyre/net/frame.h"
#include "gyre/net/stream.h"

namespace {

using namespace gyre;

constexpr std::uint64_t kChannel = 8;
constexpr std::uint8_t kType = 1;
constexpr std::chrono::seconds kPatience{10};

/// Frames with good checksums, since no fuzzer finds those: message, kind and length are the input's, and so is the
/// payload.
Bytes frames_of(std::span<const std::byte> input) {
  constexpr std::size_t kHeadBytes = 3;
  Bytes frames;
  while (input.size() >= kHeadBytes) {
    net::FrameHeader header;
    header.channel = kChannel;
    header.collective = std::to_integer<std::uint64_t>(input[0]);
    header.step = std::to_integer<std::uint32_t>(input[1]);
    const std::size_t wanted = std::to_integer<std::size_t>(input[2]);
    input = input.subspan(kHeadBytes);
    const auto payload = input.first(std::min(wanted, input.size()));
    input = input.subspan(payload.size());
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.checksum = xxh3_64(payload);
    const net::EncodedFrameHeader encoded = net::encode_frame_header(header);
    frames.insert(frames.end(), encoded.begin(), encoded.end());
    frames.insert(frames.end(), payload.begin(), payload.end());
  }
  frames.insert(frames.end(), input.begin(), input.end());
  return frames;
}

void receive(group::Group& group) {
  group::PointToPoint messages(group, kChannel, [](std::uint8_t type, std::size_t size_bytes) {
    return fmt::format("{} bytes of type {}", size_bytes, type);
  });
  std::vector<std::byte> first(4);
  std::vector<std::byte> second(100);
  const std::vector<std::byte> sent(10);
  const std::vector<group::MessageHandle> handles = {messages.receive(1, 0, kType, first),
                                                     messages.receive(std::nullopt, 1, kType, second),
                                                     messages.send(1, 0, kType, sent)};
  for (const group::MessageHandle& handle : handles) {
    try {
      handle.wait();
    } catch (const Error&) {
      continue;  // Mostly: the peer leaves, or has sent nonsense.
    }
  }
}

void send(group::Group& group, const Bytes& frames) {
  const auto link = group.connect(0, kChannel, Deadline::after(kPatience));
  try {
    net::write_exactly(*link, frames, Deadline::after(kPatience));
  } catch (const Error&) {
    return;  // Nobody reads on after nonsense.
  }
  group.leave();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes frames = frames_of(std::as_bytes(std::span(data, size)));
  group::run_in_process(2, [&](group::Group& group) { group.rank() == 0 ? receive(group) : send(group, frames); },
                        {"here", "there"});
  return 0;
}
