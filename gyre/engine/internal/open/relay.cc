#include "gyre/engine/internal/open/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "gyre/base/thread.h"
#include "gyre/engine/internal/failure.h"
#include "gyre/net/message.h"

namespace gyre::engine::internal {

namespace {

std::vector<int> ranks_of(const std::vector<NegotiationChild>& children) {
  std::vector<int> ranks;
  for (const NegotiationChild& one : children)
    ranks.insert(ranks.end(), one.child.ranks.begin(), one.child.ranks.end());
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

Relay::Relay(group::Group& group, int parent_rank, std::unique_ptr<net::Stream> parent,
             std::vector<NegotiationChild> children, std::chrono::milliseconds longest_farewell)
    : group_(group),
      parent_rank_(parent_rank),
      longest_farewell_(longest_farewell),
      parent_(std::move(parent)),
      children_(std::move(children)),
      aggregator_(ranks_of(children_)) {
  thread_ = start_thread("the negotiation's relay", [this] { run(); });
}

Relay::~Relay() {
  stopping_ = true;
  stop_.notify();
  thread_.join();
}

void Relay::run() {
  try {
    serve();
  } catch (const std::exception& error) {
    group_.abort(as_error(error));
  }
}

void Relay::serve() {
  for (;;) {
    const std::array others = {stop_.fd(), group_.abort_signal().fd()};
    poll_links(children_, &parent_, others, poll_timeout_ms());
    if (group_.abort_signal().triggered()) return;
    if (stopping_ && !farewell_ends_) {
      stop_.clear();
      farewell_ends_ = SteadyClock::now() + longest_farewell_;
    }
    for (NegotiationChild& child : children_) receive_from(child);
    receive_from_parent();
    announce();
    for (NegotiationChild& child : children_) child.link.flush();
    parent_.flush();
    if (is_done()) return;
  }
}

int Relay::poll_timeout_ms() const {
  auto next = farewell_ends_;
  if (const auto deadline = aggregator_.next_deadline(); deadline && !parent_has_left_) {
    next = std::min(next.value_or(*deadline), *deadline);
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - SteadyClock::now()).count();
  return static_cast<int>(std::max<long long>(left, 0));
}

bool Relay::is_done() const {
  if (!farewell_ends_) return false;
  const bool all_gone = std::ranges::all_of(children_, [](const auto& child) { return child.link.is_gone(); });
  return (all_gone && !parent_.has_unsent()) || SteadyClock::now() >= *farewell_ends_;
}

void Relay::receive_from(NegotiationChild& child) {
  try {
    child.link.receive([&](const net::Message& message) {
      if (message.type != kAnnouncementMessage) {
        throw Error(ErrorCode::kProtocol, fmt::format("message of type {}", message.type));
      }
      aggregator_.take(child.child, child.decoder.decode(message.payload), SteadyClock::now());
    });
  } catch (const Error& error) {
    Error reason = error;
    throw reason.add_context(fmt::format("announcement of {}", group_.topology().describe(child.child.rank)));
  }
}

void Relay::receive_from_parent() {
  parent_.receive([&](const net::Message& message) {
    if (message.type == kEndMessage) return end_children(decode_end(message.payload).what());
    if (message.type != kOrderMessage) {
      throw Error(ErrorCode::kProtocol, fmt::format("the coordinator sent a message of type {}", message.type));
    }
    aggregator_.obey(decoder_.decode(message.payload));
    const Bytes bytes = net::encode_message(message.type, message.payload);
    for (NegotiationChild& child : children_) child.link.send(bytes);
  });
  if (parent_.is_gone() && !parent_has_left_) note_loss_of_parent();
}

void Relay::note_loss_of_parent() {
  const Error cause = group_.cause_of_loss(parent_rank_, *parent_.loss());
  if (cause.code() != ErrorCode::kPeerLeft && !farewell_ends_) throw Error(cause);
  end_children(cause.what());
}

void Relay::end_children(const std::string& reason) {
  if (std::exchange(parent_has_left_, true)) return;
  const Bytes bytes = net::encode_message(kEndMessage, as_bytes(reason));
  for (NegotiationChild& child : children_) child.link.send(bytes);
}

void Relay::announce() {
  if (parent_has_left_) return;
  const auto content = aggregator_.next_announcement(SteadyClock::now());
  if (content) parent_.send(net::encode_message(kAnnouncementMessage, encoder_.encode(*content)));
}

}  // namespace gyre::engine::internal
