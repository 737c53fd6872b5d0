#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/base/thread_annotations.h"
#include "gyre/engine/options.h"
#include "gyre/net/notifier.h"

namespace gyre::engine::internal {

/// Asks the program where it and its threads are (EngineOptions::location, make_process_waits) on a thread that nobody
/// waits for: an interpreter that is busy may answer late or never. Used by one thread.
class LocationFinder {
 public:
  struct Found {
    std::uint32_t question = 0;
    std::string program;
    std::vector<ProgramThread> threads{};
  };

  /// Both may be empty: then the answers are.
  LocationFinder(std::function<std::string()> find, std::function<std::vector<ProgramThread>()> find_threads);

  /// Looks, unless an earlier look is still under way: its result then answers this question.
  void look(std::uint32_t question);
  /// Readable when take() has something.
  int fd() const { return state_->found_one.fd(); }
  std::optional<Found> take();

 private:
  struct State {
    net::Notifier found_one;
    Mutex mutex;
    bool looking GYRE_GUARDED_BY(mutex) = false;
    std::uint32_t question GYRE_GUARDED_BY(mutex) = 0;
    std::optional<Found> found GYRE_GUARDED_BY(mutex);
  };

  const std::function<std::string()> find_;
  const std::function<std::vector<ProgramThread>()> find_threads_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace gyre::engine::internal
