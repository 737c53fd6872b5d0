#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gyre/group/group.h"
#include "gyre/params/setup.h"

namespace gyre::params::internal {

/// float32 values of all tensors, in their order, without gaps: memory that a worker has in common with the servers on
/// its host. They sum gradients where the worker has written them, and write their answers over them.
class SharedValues {
 public:
  /// Whether there is memory in common: whether the two are on one host.
  static bool between(const group::Group& group, const Layout& layout, int server, int worker);

  /// Collective among the worker and the servers on its host, of which there must be one. Error(kResourceExhausted)
  /// where memory is short, besides those of Group::share_segment_among().
  SharedValues(group::Group& group, const Layout& layout, int worker, std::size_t count);

  std::span<float> values() const { return values_; }

 private:
  std::shared_ptr<net::Segment> segment_;
  std::span<float> values_;
};

}  // namespace gyre::params::internal
