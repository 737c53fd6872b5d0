#include "gyre/params/internal/shared_values.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "gyre/net/segment.h"
#include "gyre/params/internal/channel.h"

namespace gyre::params::internal {
namespace {

constexpr std::chrono::seconds kSetUpTimeout{60};

/// The values of a host's workers begin at different places of their pages: see collectives::reduce_to_many().
constexpr std::size_t kStaggerBytes = 256;
constexpr std::size_t kPlaces = 16;

std::size_t offset_of(int worker) { return kStaggerBytes * (static_cast<std::size_t>(worker) % kPlaces); }

}  // namespace

bool SharedValues::between(const group::Group& group, const Layout& layout, int server, int worker) {
  const auto host_of = [&](int rank) { return group.topology().member(rank).host_id; };
  return host_of(layout.rank_of_server(server)) == host_of(layout.rank_of_worker(worker));
}

SharedValues::SharedValues(group::Group& group, const Layout& layout, int worker, std::size_t count) {
  std::vector<int> ranks;  // Ascending: servers come first.
  for (int server = 0; server < layout.servers; ++server) {
    if (between(group, layout, server, worker)) ranks.push_back(layout.rank_of_server(server));
  }
  ranks.push_back(layout.rank_of_worker(worker));
  segment_ = group.share_segment_among(ranks, values_channel(worker),
                                       offset_of(worker) + std::max<std::size_t>(count, 1) * sizeof(float),
                                       Deadline::after(kSetUpTimeout));
  values_ = {reinterpret_cast<float*>(segment_->bytes().data() + offset_of(worker)), count};
}

}  // namespace gyre::params::internal
