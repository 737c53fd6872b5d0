#include "gyre/group/messages/point_to_point.h"

#include <utility>

#include "gyre/group/messages/internal/messenger.h"

namespace gyre::group {

PointToPoint::PointToPoint(Group& group, std::uint64_t channel, Describe describe, LocalPath local)
    : messenger_(std::make_shared<internal::Messenger>(group, channel, std::move(describe), local)) {
  messenger_->start();
}

PointToPoint::~PointToPoint() { messenger_->close(); }

MessageHandle PointToPoint::send(int peer, std::int64_t tag, std::uint8_t type, std::span<const std::byte> message) {
  return messenger_->send(peer, {tag, type, message, {}});
}

MessageHandle PointToPoint::receive(std::optional<int> peer, std::int64_t tag, std::uint8_t type,
                                    std::span<std::byte> into) {
  return messenger_->receive({peer, tag, type, into, 0, {}});
}

void PointToPoint::note_times() { messenger_->note_times(); }

void PointToPoint::shutdown() { messenger_->shutdown(); }

}  // namespace gyre::group
