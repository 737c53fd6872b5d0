#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/readable_file.h"
#include "gyre/store/reading/object_ranges.h"

namespace gyre::store {

/// Fetches parts of objects before they are read, on threads of its own, within a budget of memory. Thread-safe.
class ReadAhead {
 public:
  /// At most so much is fetched at once; larger parts are fetched side by side.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;

  ReadAhead(int threads, std::uint64_t memory_bytes) : threads_wanted_(threads), memory_bytes_(memory_bytes) {}
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// An object, and what reads it; both outlive this.
  struct Place {
    const Object* object = nullptr;
    ObjectRanges* ranges = nullptr;
  };

  /// These parts will be asked for, in this order. What is there, or on its way, is not fetched twice; too much at once
  /// is left out, and read when it is needed.
  void expect(const Place& place, std::span<const data::FileRange> parts) GYRE_EXCLUDES(mutex_);

  /// What take() had.
  struct Taken {
    std::size_t bytes = 0;    ///< At the front of `into`. 0: the caller has to read …
    std::uint64_t until = 0;  ///< … up to there at most: what lies behind may be on its way.
  };
  /// Copies what was fetched from `offset_bytes` on, waiting for what is on its way. Each byte is handed out once.
  /// Errors of the fetching are not thrown: the caller's own reading will meet them.
  Taken take(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) GYRE_EXCLUDES(mutex_);

  /// Whether all of this part is there, to be taken without waiting.
  bool holds(const Object& object, const data::FileRange& range) const GYRE_EXCLUDES(mutex_);

  /// How much it has fetched and not handed out.
  std::uint64_t used_bytes() const GYRE_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { kQueued, kFetching, kThere, kGone };
  struct Part {
    Place place;
    std::uint64_t offset_bytes = 0;
    Bytes bytes{};
    std::uint64_t size_bytes = 0;
    std::uint64_t taken_bytes = 0;
    State state = State::kQueued;

    std::uint64_t end() const { return offset_bytes + size_bytes; }
  };
  using Parts = std::map<std::pair<const Object*, std::uint64_t>, std::shared_ptr<Part>>;

  void start_threads() GYRE_REQUIRES(mutex_);
  void fetch_parts(const std::stop_token& stop) GYRE_EXCLUDES(mutex_);
  void add(const Place& place, data::FileRange range) GYRE_REQUIRES(mutex_);
  /// The part that holds this byte; null where none does.
  std::shared_ptr<Part> find(const Object& object, std::uint64_t offset_bytes) const GYRE_REQUIRES(mutex_);
  /// Where the first part of the object behind `offset_bytes` begins.
  std::uint64_t next_part(const Object& object, std::uint64_t offset_bytes) const GYRE_REQUIRES(mutex_);
  /// The next one that there is memory for.
  std::shared_ptr<Part> next_to_fetch() GYRE_REQUIRES(mutex_);
  void drop(Part& part) GYRE_REQUIRES(mutex_);
  /// A reading of so many bytes had to do without: where memory is used up, the oldest parts, which are not asked for,
  /// make room.
  void missed(std::uint64_t bytes) GYRE_REQUIRES(mutex_);

  const int threads_wanted_;
  const std::uint64_t memory_bytes_;
  std::stop_source stop_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  Parts parts_ GYRE_GUARDED_BY(mutex_);  ///< That are queued, on their way, or there.
  std::deque<std::shared_ptr<Part>> queue_ GYRE_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Part>> there_ GYRE_GUARDED_BY(mutex_);  ///< The oldest one first; some may be gone.
  std::uint64_t used_bytes_ GYRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ GYRE_GUARDED_BY(mutex_);
};

}  // namespace gyre::store
