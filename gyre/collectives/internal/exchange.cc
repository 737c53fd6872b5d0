#include "gyre/collectives/internal/exchange.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"

namespace gyre::collectives::internal {
namespace {

/// Payloads up to this size are copied behind their header.
constexpr std::size_t kShortPayloadBytes = std::size_t{16} * 1024;
/// Longest poll: bounds how late a waiting rank notices that its peer has left. (An abort wakes it at once.)
constexpr int kPollSliceMs = 200;

std::size_t segments_of(std::size_t size_bytes) {
  return size_bytes == 0 ? 1 : (size_bytes + kSegmentBytes - 1) / kSegmentBytes;
}

/// Bytes of segment `index` of a range.
std::size_t segment_bytes(std::size_t size_bytes, std::size_t index) {
  return std::min(kSegmentBytes, size_bytes - index * kSegmentBytes);
}

}  // namespace

Incoming::Incoming(group::Lane& lane, int peer, FramePlace place, std::span<std::byte> range)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      size_bytes_(range.size()),
      space_(range),
      segments_(segments_of(range.size())) {}

Incoming::Incoming(group::Lane& lane, int peer, FramePlace place, std::size_t size_bytes, std::span<std::byte> scratch,
                   SegmentSink sink)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      size_bytes_(size_bytes),
      space_(scratch),
      sink_(std::move(sink)),
      segments_(segments_of(size_bytes)) {
  GYRE_CHECK(scratch.size() >= std::min(size_bytes, kSegmentBytes));
}

std::span<std::byte> Incoming::segment_space() const {
  const std::size_t offset = sink_ ? 0 : segments_done_ * kSegmentBytes;
  return space_.subspan(offset, segment_bytes(size_bytes_, segments_done_));
}

bool Incoming::advance() {
  bool progress = false;
  while (true) {
    std::span<std::byte> into;
    if (frame_bytes_ < net::kFrameHeaderBytes) {
      into = std::span(encoded_).subspan(frame_bytes_);
    } else {
      into = segment_space().subspan(frame_bytes_ - net::kFrameHeaderBytes);
    }
    if (!into.empty()) {
      const std::size_t count = stream_->read_some(into);
      if (count == 0) return progress;
      progress = true;
      counters_->bytes_received += count;
      frame_bytes_ += count;
      if (count < into.size()) continue;
    }
    if (frame_bytes_ == net::kFrameHeaderBytes && into.data() != segment_space().data()) {
      check_header();
      if (!segment_space().empty()) continue;
    }
    finish_segment();
    return true;
  }
}

void Incoming::check_header() {
  try {
    header_ = net::decode_frame_header(encoded_);
  } catch (Error& failure) {
    failure.add_context(fmt::format("from {}", stream_->peer()));
    throw;
  }
  const std::size_t expected_bytes = segment_bytes(size_bytes_, segments_done_);
  if (header_.channel == channel_ && header_.collective == place_.collective && header_.step == place_.step &&
      header_.segment == segments_done_ && header_.payload_bytes == expected_bytes) {
    return;
  }
  throw Error(ErrorCode::kProtocol,
              fmt::format("{} sent {} bytes of lane {}, collective {}, step {}, segment {}, where {} bytes of lane {}, "
                          "collective {}, step {}, segment {} are due: the ranks do not run the same collectives",
                          stream_->peer(), header_.payload_bytes, header_.channel, header_.collective, header_.step,
                          header_.segment, expected_bytes, channel_, place_.collective, place_.step, segments_done_));
}

void Incoming::finish_segment() {
  const std::span<const std::byte> segment = segment_space();
  if (xxh3_64(segment) != header_.checksum) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} bytes from {} fail their checksum (lane {}, collective {}, step {}, segment {}): the "
                            "network or that machine's memory damages data",
                            segment.size(), stream_->peer(), channel_, place_.collective, place_.step, segments_done_));
  }
  if (sink_) sink_(arrived_bytes_, segment);
  arrived_bytes_ += segment.size();
  ++segments_done_;
  frame_bytes_ = 0;
}

Outgoing::Outgoing(group::Lane& lane, int peer, FramePlace place, std::span<const std::byte> range,
                   const Incoming* source)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      range_(range),
      source_(source),
      segments_(segments_of(range.size())) {}

bool Outgoing::ready() const {
  if (source_ == nullptr || begun_) return true;
  const std::size_t end = segments_done_ * kSegmentBytes + segment_bytes(range_.size(), segments_done_);
  return source_->arrived_bytes() >= end && (end > 0 || source_->done());
}

void Outgoing::begin_segment() {
  const std::span<const std::byte> payload =
      range_.subspan(segments_done_ * kSegmentBytes, segment_bytes(range_.size(), segments_done_));
  net::FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.channel = channel_;
  header.collective = place_.collective;
  header.step = place_.step;
  header.segment = static_cast<std::uint32_t>(segments_done_);
  header.checksum = xxh3_64(payload);
  const net::EncodedFrameHeader encoded = net::encode_frame_header(header);
  first_.assign(encoded.begin(), encoded.end());
  rest_ = payload;
  if (payload.size() <= kShortPayloadBytes) {
    first_.insert(first_.end(), payload.begin(), payload.end());
    rest_ = {};
  }
  frame_bytes_ = 0;
  begun_ = true;
}

bool Outgoing::advance() {
  if (!ready()) return false;
  if (!begun_) begin_segment();
  bool progress = false;
  while (frame_bytes_ < first_.size() + rest_.size()) {
    const std::span<const std::byte> from = frame_bytes_ < first_.size()
                                                ? std::span<const std::byte>(first_).subspan(frame_bytes_)
                                                : rest_.subspan(frame_bytes_ - first_.size());
    const std::size_t count = stream_->write_some(from);
    if (count == 0) return progress;
    progress = true;
    counters_->bytes_sent += count;
    frame_bytes_ += count;
  }
  begun_ = false;
  ++segments_done_;
  return true;
}

namespace {

/// The flows of one exchange, and what to do when they stand still.
class Movement {
 public:
  Movement(group::Lane& lane, std::span<Outgoing> outgoing, std::span<Incoming> incoming)
      : lane_(lane), outgoing_(outgoing), incoming_(incoming) {}

  void run() {
    std::optional<Deadline> deadline;  // Set while nothing moves.
    while (!done()) {
      if (advance()) {
        deadline.reset();
        continue;
      }
      if (!deadline) deadline = lane_.deadline();
      if (deadline->passed()) throw_timeout();
      wait(*deadline);
    }
  }

 private:
  bool done() const {
    const auto is_done = [](const auto& flow) { return flow.done(); };
    return std::all_of(outgoing_.begin(), outgoing_.end(), is_done) &&
           std::all_of(incoming_.begin(), incoming_.end(), is_done);
  }

  bool advance() {
    bool progress = false;
    for (Outgoing& flow : outgoing_) progress = advance(flow) || progress;
    for (Incoming& flow : incoming_) progress = advance(flow) || progress;
    return progress;
  }

  template <typename Flow>
  bool advance(Flow& flow) {
    if (flow.done()) return false;
    try {
      return flow.advance();
    } catch (const Error& failure) {
      // A broken connection is often the shadow of a failure whose cause the group knows, or soon will.
      if (failure.code() == ErrorCode::kPeerLost) throw lane_.group().verdict_on(flow.peer(), failure);
      throw;
    }
  }

  /// Blocks until a flow can go on, the group is aborted or the deadline has passed.
  void wait(Deadline deadline) {
    waits_.assign(1, {lane_.abort_signal().fd(), POLLIN, 0});
    for (const Outgoing& flow : outgoing_) {
      if (!flow.done() && flow.ready()) waits_.push_back({flow.fd(), POLLOUT, 0});
    }
    for (const Incoming& flow : incoming_) {
      if (!flow.done()) waits_.push_back({flow.fd(), POLLIN, 0});
    }
    const int woken = poll(waits_.data(), waits_.size(), deadline.poll_timeout_ms(kPollSliceMs));
    if (woken < 0 && errno != EINTR) throw system_error("poll on the links of a collective", errno);
    lane_.abort_signal().throw_if_triggered();
    if (woken == 0 && lane_.group().departures() > 0) throw_if_awaiting_a_leaver();
  }

  /// What a rank sent before it left would have made its link readable.
  void throw_if_awaiting_a_leaver() const {
    for (const Incoming& flow : incoming_) {
      if (flow.done() || !lane_.group().has_left(flow.peer())) continue;
      throw Error(ErrorCode::kPeerLeft,
                  fmt::format("{} left the group while rank {} waited for it in collective {} of lane {}",
                              lane_.topology().describe(flow.peer()), lane_.rank(), lane_.counters().collectives,
                              lane_.channel()));
    }
  }

  [[noreturn]] void throw_timeout() const {
    std::string peers;
    const auto add = [&](int peer, std::string_view what) {
      peers += fmt::format("{}{} {}", peers.empty() ? "" : ", ", lane_.topology().describe(peer), what);
    };
    for (const Incoming& flow : incoming_) {
      if (!flow.done()) add(flow.peer(), "sent nothing");
    }
    for (const Outgoing& flow : outgoing_) {
      if (!flow.done() && flow.ready()) add(flow.peer(), "took nothing");
    }
    throw Error(ErrorCode::kTimeout,
                fmt::format("collective {} of lane {}: nothing moved for the lane's timeout ({}); is that process "
                            "stopped, or its machine unreachable?",
                            lane_.counters().collectives, lane_.channel(), peers));
  }

  group::Lane& lane_;
  std::span<Outgoing> outgoing_;
  std::span<Incoming> incoming_;
  std::vector<pollfd> waits_;
};

}  // namespace

void exchange(group::Lane& lane, std::span<Outgoing> outgoing, std::span<Incoming> incoming) {
  Movement(lane, outgoing, incoming).run();
}

void open_links(group::Lane& lane, std::vector<int> peers) {
  const int own = lane.rank();
  std::sort(peers.begin(), peers.end(), [own](int a, int b) {
    return std::pair(std::min(a, own), std::max(a, own)) < std::pair(std::min(b, own), std::max(b, own));
  });
  for (const int peer : peers) {
    if (peer != own) lane.link(peer);
  }
}

}  // namespace gyre::collectives::internal
