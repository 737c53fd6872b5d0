#pragma once

#include <cstddef>
#include <functional>

namespace gyre::data::internal {

/// Calls `work` with each index below `count`, on up to `threads` threads, of which the caller's is one. Where some
/// fail, throws the failure of the lowest index that has been met; `what` names the threads.
void for_each_index(std::size_t count, int threads, const char* what, const std::function<void(std::size_t)>& work);

}  // namespace gyre::data::internal
