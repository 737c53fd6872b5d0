#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/node/catalog.h"

namespace gyre::store::node {

/// Bytes that a node may hold in memory for chunks that are under way. Thread-safe.
class MemoryCredits {
 public:
  explicit MemoryCredits(std::uint64_t bytes) : free_bytes_(bytes), most_bytes_(bytes) {}

  /// Waits for them; a chunk larger than all of them may pass when it is alone. False when stopped.
  bool take(std::uint64_t bytes, const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  void give(std::uint64_t bytes) GYRE_EXCLUDES(mutex_);
  /// What take() takes for so many bytes.
  std::uint64_t charge(std::uint64_t bytes) const { return bytes < most_bytes_ ? bytes : most_bytes_; }

 private:
  Mutex mutex_;
  ConditionVariable freed_;
  std::uint64_t free_bytes_ GYRE_GUARDED_BY(mutex_);
  const std::uint64_t most_bytes_;
};

/// The chunks that a node is fetching, each once whoever asks for it, by a fixed number of threads. Chunks that
/// somebody waits for come first; in between the threads fetch ahead, all but a quarter of them: what somebody waits
/// for must not wait for a source that is silent. Thread-safe.
class Flights {
 public:
  using FetchedBytes = std::shared_ptr<const Bytes>;
  /// Fetches a chunk, and keeps it if it can. Error.
  using Fetch = std::function<void(const Piece& chunk, std::span<std::byte> into, const std::stop_token& stop)>;
  /// A step of the search for what to fetch ahead.
  struct Step {
    std::optional<Piece> chunk{};
    bool is_last = false;  ///< Nothing is left to fetch ahead for now.
  };
  /// Called by several threads at once; short.
  using Ahead = std::function<Step()>;

  Flights(int threads, std::uint64_t memory_bytes, Fetch fetch, Ahead ahead);
  /// stop()
  ~Flights();
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;

  /// Waits until the chunk is there, and returns its bytes. `still_waiting` is called once a second; it may throw.
  /// Error: why it cannot be fetched.
  FetchedBytes demand(const Piece& chunk, const std::function<void()>& still_waiting) GYRE_EXCLUDES(mutex_);
  /// There may be something to fetch ahead again.
  void look_ahead() GYRE_EXCLUDES(mutex_);
  /// Whether nothing is left to fetch ahead.
  bool ahead_is_done() const GYRE_EXCLUDES(mutex_);
  std::stop_token stop_token() const { return stop_.get_token(); }
  /// Ends the threads; waiters fail with Error(kShutDown). Idempotent.
  void stop() GYRE_EXCLUDES(mutex_);

 private:
  struct Flight {
    bool done = false;
    FetchedBytes bytes{};
    std::optional<Error> failure{};
  };
  using ChunkNumber = std::pair<std::size_t, std::uint32_t>;
  static ChunkNumber number_of(const Piece& chunk) { return {chunk.entry, chunk.number}; }

  void work() GYRE_EXCLUDES(mutex_);
  void go_ahead() GYRE_EXCLUDES(mutex_);
  void fly(const Piece& chunk, const std::shared_ptr<Flight>& flight) GYRE_EXCLUDES(mutex_);

  const Fetch fetch_;
  const Ahead ahead_;
  const int most_ahead_;  ///< Threads that fetch ahead.
  std::shared_ptr<MemoryCredits> credits_;
  std::stop_source stop_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<ChunkNumber, std::shared_ptr<Flight>> flights_ GYRE_GUARDED_BY(mutex_);
  std::deque<Piece> demanded_ GYRE_GUARDED_BY(mutex_);
  bool nothing_ahead_ GYRE_GUARDED_BY(mutex_) = false;
  std::uint64_t plan_ GYRE_GUARDED_BY(mutex_) = 0;  ///< Counts look_ahead().
  int ahead_under_way_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace gyre::store::node
