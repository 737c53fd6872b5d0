#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gyre/base/thread_annotations.h"
#include "gyre/net/notifier.h"

namespace gyre::engine::internal {

/// Asks the program where it is (EngineOptions::location) on a thread that nobody waits for: an interpreter that is
/// busy may answer late or never. Used by one thread.
class LocationFinder {
 public:
  struct Found {
    std::uint32_t question = 0;
    std::string program;
  };

  /// `find` may be empty: then the answer is.
  explicit LocationFinder(std::function<std::string()> find);

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
    std::optional<std::string> program GYRE_GUARDED_BY(mutex);
  };

  const std::function<std::string()> find_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace gyre::engine::internal
