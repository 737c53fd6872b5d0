#include "gyre/net/http/followed_files.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/net/http/internal/file_bytes.h"

namespace gyre::net::http {
namespace internal {
namespace {

/// How long a follower waits before it looks at a file again: doubled while nothing comes.
constexpr std::chrono::milliseconds kShortestPause{50};
constexpr std::chrono::milliseconds kLongestPause{800};
constexpr std::size_t kMostSharedBytes = 16'384;

}  // namespace

/// The end of a file as some follower saw it last. Thread-safe.
class SharedEnd {
 public:
  explicit SharedEnd(std::chrono::milliseconds fresh) : fresh_(fresh) {}

  /// A look that began at `when` found `bytes` at `offset`, and nothing behind them. `ended`: there were none, and the
  /// writer had ended before.
  void publish(SteadyClock::time_point when, std::uint64_t offset, const std::string& bytes, bool ended) {
    const MutexLock lock(mutex_);
    if (when < seen_) return;
    seen_ = when;
    ended_ = ended;
    if (bytes.empty() && offset == begin_ + bytes_.size()) return;  // Others may not have had the last ones yet.
    begin_ = offset;
    bytes_ = bytes;
  }

  /// What follows `offset`, if that is known for now.
  std::optional<BodySource::Piece> find(std::uint64_t offset, std::size_t most) const {
    const MutexLock lock(mutex_);
    if (offset < begin_ || offset > begin_ + bytes_.size() || SteadyClock::now() > seen_ + fresh_) return std::nullopt;
    BodySource::Piece piece{.bytes = bytes_.substr(offset - begin_, most)};
    piece.end = piece.bytes.empty() && ended_;
    return piece;
  }

 private:
  const std::chrono::milliseconds fresh_;
  mutable Mutex mutex_;
  SteadyClock::time_point seen_ GYRE_GUARDED_BY(mutex_);
  std::uint64_t begin_ GYRE_GUARDED_BY(mutex_) = 0;
  std::string bytes_ GYRE_GUARDED_BY(mutex_);
  bool ended_ GYRE_GUARDED_BY(mutex_) = false;
};

namespace {

class FollowedFile : public BodySource {
 public:
  FollowedFile(UniqueFd file, std::uint64_t offset, WriterEnded ended, std::shared_ptr<SharedEnd> shared)
      : file_(std::move(file)), offset_(offset), ended_(std::move(ended)), shared_(std::move(shared)) {}

  std::optional<Piece> read_at_hand(std::size_t most_bytes) override {
    std::optional<Piece> piece = shared_->find(offset_, most_bytes);
    if (piece) count(*piece);
    return piece;
  }

  Piece read(std::size_t most_bytes) override {
    const auto begun = SteadyClock::now();
    Piece piece{.bytes = read_more(most_bytes)};
    const bool ended = piece.bytes.empty() && ended_();
    // What was written since that read, before the end, is sure to be there now.
    if (ended) piece.bytes = read_more(most_bytes);
    piece.end = ended && piece.bytes.empty();
    const bool others_follow = shared_.use_count() > 1;
    if (others_follow && piece.bytes.size() < std::min(most_bytes, kMostSharedBytes)) {
      shared_->publish(begun, offset_, piece.bytes, piece.end);
    }
    count(piece);
    return piece;
  }

 private:
  std::string read_more(std::size_t most_bytes) const {
    const auto size = static_cast<std::uint64_t>(status_of(file_).st_size);
    if (size < offset_) throw Error(ErrorCode::kIo, "the file became shorter while it was followed");
    return size == offset_ ? std::string()
                           : read_at(file_, offset_, std::min<std::uint64_t>(size - offset_, most_bytes));
  }

  /// Of a piece that is about to be sent.
  void count(Piece& piece) {
    piece.wait = pause_;
    offset_ += piece.bytes.size();
    pause_ = piece.bytes.empty() ? std::min(pause_ * 2, kLongestPause) : kShortestPause;
  }

  UniqueFd file_;
  std::uint64_t offset_;
  WriterEnded ended_;
  std::shared_ptr<SharedEnd> shared_;
  std::chrono::milliseconds pause_ = kShortestPause;
};

}  // namespace
}  // namespace internal

std::shared_ptr<BodySource> FollowedFiles::follow(UniqueFd file, std::uint64_t offset, const std::string& writer,
                                                  WriterEnded ended) {
  const struct stat status = internal::status_of(file);
  std::shared_ptr<internal::SharedEnd> shared;
  {
    const MutexLock lock(mutex_);
    std::erase_if(ends_, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<internal::SharedEnd>& known = ends_[Key(writer, status.st_dev, status.st_ino)];
    shared = known.lock();
    if (shared == nullptr) known = shared = std::make_shared<internal::SharedEnd>(fresh_);
  }
  return std::make_shared<internal::FollowedFile>(std::move(file), offset, std::move(ended), std::move(shared));
}

}  // namespace gyre::net::http
