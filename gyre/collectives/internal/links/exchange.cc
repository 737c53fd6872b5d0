#include "gyre/collectives/internal/links/exchange.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/collectives/internal/links/wire_encoding.h"

namespace gyre::collectives::internal {
namespace {

/// Payloads up to this size are copied behind their header.
constexpr std::size_t kShortPayloadBytes = std::size_t{16} * 1024;
/// Longest poll: bounds how late a waiting rank notices that its peer has left. (An abort wakes it at once.)
constexpr int kPollSliceMs = 200;

std::size_t pieces_in(std::size_t size_bytes, const Framing& framing) {
  return size_bytes == 0 ? 1 : (size_bytes + framing.piece_bytes - 1) / framing.piece_bytes;
}

/// Bytes of piece `index` of a range, before encoding.
std::size_t piece_of(std::size_t size_bytes, std::size_t index, const Framing& framing) {
  return std::min(framing.piece_bytes, size_bytes - index * framing.piece_bytes);
}

void check(const Framing& framing) {
  GYRE_CHECK(framing.piece_bytes > 0U);
  GYRE_CHECK(framing.piece_bytes <= kPieceBytes);
  GYRE_CHECK(framing.piece_bytes % 64 == 0U);
}

}  // namespace

Incoming::Incoming(group::Lane& lane, int peer, FramePlace place, std::span<std::byte> range, Framing framing,
                   PieceSink sink)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      framing_(framing),
      size_bytes_(range.size()),
      space_(range),
      in_place_(true),
      sink_(std::move(sink)),
      pieces_(pieces_in(range.size(), framing)) {
  check(framing);
  GYRE_CHECK(!framing.encoded());
}

Incoming::Incoming(group::Lane& lane, int peer, FramePlace place, std::size_t size_bytes, std::span<std::byte> scratch,
                   PieceSink sink, Framing framing)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      framing_(framing),
      size_bytes_(size_bytes),
      space_(scratch),
      in_place_(false),
      sink_(std::move(sink)),
      pieces_(pieces_in(size_bytes, framing)) {
  check(framing);
  GYRE_CHECK(scratch.size() >= framing.payload_bytes(std::min(size_bytes, framing.piece_bytes)));
}

std::size_t Incoming::piece_bytes() const { return piece_of(size_bytes_, pieces_done_, framing_); }

std::span<std::byte> Incoming::payload_space() const {
  const std::size_t offset = in_place_ ? pieces_done_ * framing_.piece_bytes : 0;
  return space_.subspan(offset, framing_.payload_bytes(piece_bytes()));
}

std::size_t Incoming::read_some(std::span<std::byte> into) {
  const CountedTime sending(counters_->sending_ns);
  return stream_->read_some(into);
}

bool Incoming::advance() {
  bool progress = false;
  while (true) {
    std::span<std::byte> into;
    if (frame_bytes_ < net::kFrameHeaderBytes) {
      into = std::span(encoded_).subspan(frame_bytes_);
    } else {
      into = payload_space().subspan(frame_bytes_ - net::kFrameHeaderBytes);
    }
    if (!into.empty()) {
      const std::size_t count = read_some(into);
      if (count == 0) return progress;
      progress = true;
      counters_->bytes_received += count;
      frame_bytes_ += count;
      if (count < into.size()) continue;
    }
    if (frame_bytes_ == net::kFrameHeaderBytes && into.data() != payload_space().data()) {
      check_header();
      if (!payload_space().empty()) continue;
    }
    finish_piece();
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
  const std::size_t expected_bytes = framing_.payload_bytes(piece_bytes());
  if (header_.channel == channel_ && header_.collective == place_.collective && header_.step == place_.step &&
      header_.piece == pieces_done_ && header_.payload_bytes == expected_bytes) {
    return;
  }
  throw Error(ErrorCode::kProtocol,
              fmt::format("{} sent {} bytes of lane {}, collective {}, step {}, piece {}, where {} bytes of lane {}, "
                          "collective {}, step {}, piece {} are due: the ranks do not run the same collectives",
                          stream_->peer(), header_.payload_bytes, header_.channel, header_.collective, header_.step,
                          header_.piece, expected_bytes, channel_, place_.collective, place_.step, pieces_done_));
}

void Incoming::finish_piece() {
  const std::span<const std::byte> payload = payload_space();
  if (xxh3_64(payload) != header_.checksum) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} bytes from {} fail their checksum (lane {}, collective {}, step {}, piece {}): the "
                            "network or that machine's memory damages data",
                            payload.size(), stream_->peer(), channel_, place_.collective, place_.step, pieces_done_));
  }
  if (sink_) {
    const CountedTime reducing(counters_->reducing_ns);
    sink_(arrived_bytes_, payload);
  }
  arrived_bytes_ += piece_bytes();
  ++pieces_done_;
  frame_bytes_ = 0;
}

Outgoing::Outgoing(group::Lane& lane, int peer, FramePlace place, std::span<const std::byte> range,
                   const Incoming* source, Framing framing, BeforeSending before)
    : counters_(&lane.counters()),
      peer_(peer),
      stream_(&lane.link(peer)),
      channel_(static_cast<std::uint32_t>(lane.channel())),
      place_(place),
      framing_(framing),
      range_(range),
      source_(source),
      before_(std::move(before)),
      pieces_(pieces_in(range.size(), framing)) {
  check(framing);
}

bool Outgoing::ready() const {
  if (source_ == nullptr || begun_) return true;
  const std::size_t end = pieces_done_ * framing_.piece_bytes + piece_of(range_.size(), pieces_done_, framing_);
  return source_->arrived_bytes() >= end && (end > 0 || source_->done());
}

void Outgoing::begin_piece() {
  const std::size_t offset = pieces_done_ * framing_.piece_bytes;
  const std::span<const std::byte> piece = range_.subspan(offset, piece_of(range_.size(), pieces_done_, framing_));
  if (before_) {
    const CountedTime reducing(counters_->reducing_ns);
    before_(offset, piece.size());
  }
  const std::size_t payload_bytes = framing_.payload_bytes(piece.size());
  const bool copied = framing_.encoded() || payload_bytes <= kShortPayloadBytes;
  first_.resize(net::kFrameHeaderBytes + (copied ? payload_bytes : 0));
  const std::span<std::byte> behind_header = std::span(first_).subspan(net::kFrameHeaderBytes);
  if (framing_.encoded()) {
    encode(behind_header, piece, framing_.wire);
  } else if (copied) {
    std::copy(piece.begin(), piece.end(), behind_header.begin());
  }
  rest_ = copied ? std::span<const std::byte>{} : piece;

  net::FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.channel = channel_;
  header.collective = place_.collective;
  header.step = place_.step;
  header.piece = static_cast<std::uint32_t>(pieces_done_);
  header.checksum = xxh3_64(copied ? behind_header : piece);
  const net::EncodedFrameHeader encoded = net::encode_frame_header(header);
  std::copy(encoded.begin(), encoded.end(), first_.begin());
  frame_bytes_ = 0;
  begun_ = true;
}

std::size_t Outgoing::write_some(std::span<const std::byte> from) {
  const CountedTime sending(counters_->sending_ns);
  return stream_->write_some(from);
}

bool Outgoing::advance() {
  if (!ready()) return false;
  if (!begun_) begin_piece();
  bool progress = false;
  while (frame_bytes_ < first_.size() + rest_.size()) {
    const std::span<const std::byte> from = frame_bytes_ < first_.size()
                                                ? std::span<const std::byte>(first_).subspan(frame_bytes_)
                                                : rest_.subspan(frame_bytes_ - first_.size());
    const std::size_t count = write_some(from);
    if (count == 0) return progress;
    progress = true;
    counters_->bytes_sent += count;
    frame_bytes_ += count;
  }
  begun_ = false;
  ++pieces_done_;
  if (done()) first_ = {};  // Other flows of the exchange may go on for long.
  return true;
}

namespace {

/// The flows to one peer, or from one: one after the other, as the bytes of a stream are.
template <typename Flow>
class Queue {
 public:
  explicit Queue(int peer) : peer_(peer) {}

  int peer() const { return peer_; }
  void add(Flow& flow) { flows_.push_back(&flow); }
  bool done() const { return next_ == flows_.size(); }
  Flow& front() const { return *flows_[next_]; }

  void abandon(const Error& cause) {
    if (!done()) front().abandon(cause);
  }

  bool advance() {
    const bool progress = front().advance();
    if (front().done()) ++next_;
    return progress;
  }

 private:
  int peer_;
  std::vector<Flow*> flows_;
  std::size_t next_ = 0;
};

template <typename Flow>
std::vector<Queue<Flow>> in_queues(std::span<Flow> flows) {
  std::vector<Queue<Flow>> queues;
  for (Flow& flow : flows) {
    auto queue = std::find_if(queues.begin(), queues.end(), [&](const auto& one) { return one.peer() == flow.peer(); });
    if (queue == queues.end()) queue = queues.emplace(queues.end(), flow.peer());
    queue->add(flow);
  }
  return queues;
}

/// The flows of one exchange, and what to do when they stand still.
class Movement {
 public:
  Movement(group::Lane& lane, std::span<Outgoing> outgoing, std::span<Incoming> incoming)
      : lane_(lane), outgoing_(in_queues(outgoing)), incoming_(in_queues(incoming)) {}

  void run() {
    try {
      move_all();
    } catch (const std::exception& error) {
      const Error cause = as_error(error);
      for (Queue<Outgoing>& queue : outgoing_) queue.abandon(cause);
      for (Queue<Incoming>& queue : incoming_) queue.abandon(cause);
      throw;
    }
  }

 private:
  void move_all() {
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

  bool done() const {
    const auto is_done = [](const auto& queue) { return queue.done(); };
    return std::all_of(outgoing_.begin(), outgoing_.end(), is_done) &&
           std::all_of(incoming_.begin(), incoming_.end(), is_done);
  }

  bool advance() {
    bool progress = false;
    for (Queue<Outgoing>& queue : outgoing_) progress = advance(queue) || progress;
    for (Queue<Incoming>& queue : incoming_) progress = advance(queue) || progress;
    return progress;
  }

  template <typename Flow>
  bool advance(Queue<Flow>& queue) {
    if (queue.done()) return false;
    try {
      return queue.advance();
    } catch (const Error& failure) {
      // A broken connection is often the shadow of a failure whose cause the group knows, or soon will.
      if (failure.code() == ErrorCode::kPeerLost) throw lane_.group().cause_of_loss(queue.peer(), failure);
      throw;
    }
  }

  /// Blocks until a flow can go on, the group is aborted or the deadline has passed.
  void wait(Deadline deadline) {
    waits_.assign(1, {lane_.abort_signal().fd(), POLLIN, 0});
    for (const Queue<Outgoing>& queue : outgoing_) {
      if (!queue.done() && queue.front().ready()) waits_.push_back({queue.front().fd(), POLLOUT, 0});
    }
    for (const Queue<Incoming>& queue : incoming_) {
      if (!queue.done()) waits_.push_back({queue.front().fd(), POLLIN, 0});
    }
    const CountedTime waiting(lane_.counters().waiting_ns);
    const int woken = poll(waits_.data(), waits_.size(), deadline.poll_timeout_ms(kPollSliceMs));
    if (woken < 0 && errno != EINTR) throw system_error("poll on the links of a collective", errno);
    lane_.abort_signal().throw_if_triggered();
    if (woken == 0 && lane_.group().exit_count() > 0) throw_if_awaiting_a_leaver();
  }

  /// What a rank sent before it left would have made its link readable.
  void throw_if_awaiting_a_leaver() const {
    for (const Queue<Incoming>& queue : incoming_) {
      if (queue.done() || !lane_.group().has_left(queue.peer())) continue;
      throw Error(ErrorCode::kPeerLeft,
                  fmt::format("{} left while rank {} waited for it", lane_.topology().describe(queue.peer()),
                              lane_.topology().self().rank_in_job.value_or(lane_.rank())));
    }
  }

  [[noreturn]] void throw_timeout() const {
    std::string peers;
    const auto add = [&](int peer, std::string_view what) {
      peers += fmt::format("{}{} {}", peers.empty() ? "" : ", ", lane_.topology().describe(peer), what);
    };
    for (const Queue<Incoming>& queue : incoming_) {
      if (!queue.done()) add(queue.peer(), "sent nothing");
    }
    for (const Queue<Outgoing>& queue : outgoing_) {
      if (!queue.done() && queue.front().ready()) add(queue.peer(), "took nothing");
    }
    throw Error(ErrorCode::kTimeout,
                fmt::format("nothing moved for as long as a collective may wait ({}); is that process stopped, or its "
                            "machine unreachable?",
                            peers));
  }

  group::Lane& lane_;
  std::vector<Queue<Outgoing>> outgoing_;
  std::vector<Queue<Incoming>> incoming_;
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
