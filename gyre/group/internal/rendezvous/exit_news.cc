#include "gyre/group/internal/rendezvous/exit_news.h"

#include <algorithm>
#include <utility>

namespace gyre::group {

bool ExitNews::add(const Exit& exit, SteadyClock::time_point now) {
  waiting_.push_back(exit);
  if (waiting_.size() > 1) return false;
  due_ = std::max(now, not_before_);
  return true;
}

std::vector<Exit> ExitNews::take(SteadyClock::time_point now) {
  if (waiting_.empty()) return {};
  const bool quiet_since = now >= not_before_ + pause_;
  pause_ = quiet_since ? kFirstPause : std::min(2 * pause_, kLongestPause);
  not_before_ = now + pause_;
  return std::exchange(waiting_, {});
}

}  // namespace gyre::group
