#include "gyre/group/lane.h"

#include "gyre/base/check.h"

namespace gyre::group {

Lane::Lane(Group& group, const LaneOptions& options)
    : group_(group), options_(options), links_(static_cast<std::size_t>(group.size())) {
  if (options_.segment_bytes > 0) {
    segment_ = group_.share_segment(options_.channel, options_.segment_bytes, deadline());
  }
}

Lane::~Lane() = default;

net::Stream& Lane::link(int peer) {
  GYRE_CHECK(peer >= 0);
  GYRE_CHECK(peer < size());
  GYRE_CHECK(peer != rank());
  auto& link = links_[static_cast<std::size_t>(peer)];
  if (!link) link = group_.open_link(peer, options_.channel, deadline());
  return *link;
}

std::span<std::byte> Lane::segment() const { return segment_ ? segment_->bytes() : std::span<std::byte>{}; }

Deadline Lane::deadline() const {
  return options_.timeout.count() == 0 ? Deadline::never() : Deadline::after(options_.timeout);
}

}  // namespace gyre::group
