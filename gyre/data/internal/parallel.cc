#include "gyre/data/internal/parallel.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"

namespace gyre::data::internal {

void for_each_index(std::size_t count, int threads, const char* what, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  Mutex mutex;
  std::optional<std::pair<std::size_t, Error>> failure;  // Of the first index that has one, whoever meets it first.
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (const std::exception& exception) {
        const MutexLock lock(mutex);
        if (!failure || i < failure->first) failure.emplace(i, as_error(exception));
        return;
      }
    }
  };
  std::vector<std::thread> helpers;
  const auto wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), count);
  for (std::size_t i = 1; i < wanted; ++i) helpers.push_back(start_thread(what, run));
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) throw Error(failure->second);
}

}  // namespace gyre::data::internal
