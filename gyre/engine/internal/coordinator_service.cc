#include "gyre/engine/internal/coordinator_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace gyre::engine::internal {

namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
/// A rank that does not read its orders while so much is waiting for it has stopped working.
constexpr std::size_t kMostOutgoingBytes = std::size_t{256} << 20;

CoordinatorOptions coordinator_options(const group::Group& group, const EngineOptions& options) {
  const group::Topology& topology = group.topology();
  CoordinatorOptions result{group.size(),
                            largest_bucket_bytes(options.fusion_bytes, topology.one_host()),
                            static_cast<int>(topology.hosts().size()),
                            {}};
  for (int rank = 0; rank < group.size(); ++rank) {
    result.rank_names.push_back(topology.member(rank).rank_in_job.value_or(rank));
  }
  return result;
}

}  // namespace

CoordinatorService::CoordinatorService(group::Group& group, std::vector<std::unique_ptr<net::Stream>> links,
                                       const EngineOptions& options, Timeline& timeline, Logger logger)
    : group_(group),
      options_(options),
      timeline_(timeline),
      logger_(std::move(logger)),
      coordinator_(coordinator_options(group, options)) {
  for (auto& link : links) {
    peers_.emplace_back();
    peers_.back().link = std::move(link);
  }
  thread_ = std::thread([this] { run(); });
}

CoordinatorService::~CoordinatorService() {
  stopping_ = true;
  stop_.notify();
  thread_.join();
}

void CoordinatorService::run() {
  try {
    serve();
  } catch (const std::exception& error) {
    group_.abort(as_error(error).add_context("rank 0's coordinator failed"));
  }
}

void CoordinatorService::serve() {
  for (;;) {
    const std::vector<short> events = poll_peers();
    if (stopping_ || group_.abort_signal().triggered()) return;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      if ((events[rank] & ~POLLOUT) != 0) receive_from(static_cast<int>(rank));
    }
    send_orders();
    report_stalls();
  }
}

std::vector<short> CoordinatorService::poll_peers() {
  std::vector<pollfd> polled;
  for (const Peer& peer : peers_) {
    const short events = static_cast<short>(POLLIN | (peer.outgoing.empty() ? 0 : POLLOUT));
    polled.push_back({peer.gone ? -1 : peer.link->fd(), events, 0});
  }
  polled.push_back({stop_.fd(), POLLIN, 0});
  polled.push_back({group_.abort_signal().fd(), POLLIN, 0});
  if (::poll(polled.data(), polled.size(), poll_timeout_ms()) < 0 && errno != EINTR) throw system_error("poll", errno);
  std::vector<short> events;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) events.push_back(polled[rank].revents);
  return events;
}

void CoordinatorService::receive_from(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  std::array<std::byte, kReadBytes> buffer;
  try {
    for (;;) {
      const std::size_t count = peer.link->read_some(buffer);
      peer.parser.append(std::span(buffer).first(count));
      while (auto message = peer.parser.next()) take_announcement(rank, *message);
      if (count < buffer.size()) return;
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) {
      Error reason = error;
      throw reason.add_context(fmt::format("announcement of {}", group_.topology().describe(rank)));
    }
    // A rank that said goodbye may close; one that did not is the group's to report, which sees its death as well.
    peer.gone = true;
  }
}

void CoordinatorService::take_announcement(int rank, const net::Message& message) {
  if (message.type != kAnnouncementMessage) {
    throw Error(ErrorCode::kProtocol, fmt::format("message of type {}", message.type));
  }
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  AnnouncementContent content = peer.decoder.decode(message.payload);
  const auto now = SteadyClock::now();
  for (Announced& announced : content.operations) {
    if (timeline_.enabled()) timeline_.instant(announced.name, fmt::format("{}", rank));
    coordinator_.announce(rank, std::move(announced), now);
  }
  for (const PlanStep& step : content.steps) coordinator_.begin_step(rank, step);
  if (content.join) coordinator_.join(rank, *content.join);
  if (content.leaving && !peer.leaving) {
    peer.leaving = true;
    coordinator_.depart(rank);
  }
}

void CoordinatorService::send_orders() {
  const Order order = coordinator_.take_order();
  if (!order.empty()) {
    timeline_.mark_cycle();
    const Bytes message = net::encode_message(kOrderMessage, encoder_.encode(order));
    for (Peer& peer : peers_) {
      if (!peer.gone) peer.outgoing.insert(peer.outgoing.end(), message.begin(), message.end());
    }
  }
  for (Peer& peer : peers_) flush(peer);
}

void CoordinatorService::flush(Peer& peer) {
  if (peer.gone || peer.outgoing.empty()) return;
  try {
    const std::size_t count = peer.link->write_some(peer.outgoing);
    peer.outgoing.erase(peer.outgoing.begin(), peer.outgoing.begin() + static_cast<std::ptrdiff_t>(count));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    peer.gone = true;
    return;
  }
  if (peer.outgoing.size() > kMostOutgoingBytes) {
    throw Error(ErrorCode::kResourceExhausted, fmt::format("{} does not read its orders: {} are waiting for it",
                                                           peer.link->peer(), format_bytes(peer.outgoing.size())));
  }
}

int CoordinatorService::poll_timeout_ms() const {
  const auto oldest = coordinator_.oldest_wait();
  if (!oldest) return -1;
  // The next moment at which a wait becomes reportable: first warning, repeated warning, or failure.
  SteadyClock::time_point next = SteadyClock::time_point::max();
  if (options_.stall_warning.count() > 0) {
    next = std::max(*oldest + options_.stall_warning, last_stall_report_ + options_.stall_warning);
  }
  if (options_.stall_failure.count() > 0) next = std::min(next, *oldest + options_.stall_failure);
  if (next == SteadyClock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 3'600'000));
}

void CoordinatorService::report_stalls() {
  const auto now = SteadyClock::now();
  const auto text = [&](const Stall& stall) {
    std::vector<int> ready;
    for (const int rank : stall.ready_ranks) {
      ready.push_back(group_.topology().member(rank).rank_in_job.value_or(rank));
    }
    std::vector<std::string> missing;
    for (const int rank : stall.missing_ranks) {
      missing.push_back(fmt::format("{}, whose last was {}", group_.topology().describe(rank),
                                    coordinator_.last_announced(rank, now)));
    }
    return fmt::format("{} '{}' has waited {:.1f} s: ready on rank{} {}; missing: {}", operation_name(stall.kind),
                       stall.name, static_cast<double>(stall.waited.count()) / 1000,
                       stall.ready_ranks.size() > 1 ? "s" : "", fmt::join(ready, ", "), fmt::join(missing, "; "));
  };
  if (options_.stall_failure.count() > 0) {
    const auto fatal = coordinator_.stalls(now, options_.stall_failure);
    if (!fatal.empty()) {
      group_.abort(Error(ErrorCode::kTimeout, fmt::format("{} (the limit is {} s)", text(fatal.front()),
                                                          static_cast<double>(options_.stall_failure.count()) / 1000)));
      return;
    }
  }
  if (options_.stall_warning.count() == 0 || now < last_stall_report_ + options_.stall_warning) return;
  const auto stalls = coordinator_.stalls(now, options_.stall_warning);
  if (stalls.empty()) return;
  last_stall_report_ = now;
  constexpr std::size_t kMostReported = 10;
  for (std::size_t i = 0; i < std::min(stalls.size(), kMostReported); ++i) {
    logger_->warn("stall: {}. The missing ranks run other code, are slower, or wait for something else",
                  text(stalls[i]));
  }
  if (stalls.size() > kMostReported) logger_->warn("stall: and {} more operations", stalls.size() - kMostReported);
}

}  // namespace gyre::engine::internal
