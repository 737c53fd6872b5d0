#include "gyre/store/staging/staging_state.h"

#include <algorithm>
#include <chrono>

namespace gyre::store {

namespace {

constexpr std::uint64_t kLargestWhole = std::uint64_t{64} << 20;
constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
constexpr std::chrono::milliseconds kLookForStop{50};

}  // namespace

std::uint32_t piece_count(std::uint64_t size_bytes) {
  return size_bytes <= kLargestWhole ? 1 : static_cast<std::uint32_t>((size_bytes + kPieceBytes - 1) / kPieceBytes);
}

Piece piece_of(std::size_t entry, std::uint64_t size_bytes, std::uint32_t number) {
  if (size_bytes <= kLargestWhole) return {.entry = entry, .size_bytes = size_bytes};
  const std::uint64_t offset = number * kPieceBytes;
  return {.entry = entry,
          .number = number,
          .offset_bytes = offset,
          .size_bytes = std::min(kPieceBytes, size_bytes - offset)};
}

std::vector<Piece> pieces_of(std::size_t entry, std::uint64_t size_bytes) {
  std::vector<Piece> pieces;
  for (std::uint32_t i = 0; i < piece_count(size_bytes); ++i) pieces.push_back(piece_of(entry, size_bytes, i));
  return pieces;
}

void StagingState::add(std::size_t entry, std::vector<Piece> missing) {
  const MutexLock lock(mutex_);
  entries_[entry].open_pieces = missing.size();
  waiting_.insert(waiting_.end(), missing.begin(), missing.end());
  changed_.notify_all();
}

void StagingState::seal() {
  const MutexLock lock(mutex_);
  sealed_ = true;
  changed_.notify_all();
}

bool StagingState::all_done() const { return sealed_ && waiting_.empty() && under_way_ == 0; }

void StagingState::release(std::uint64_t bytes) {
  free_bytes_ += static_cast<std::int64_t>(bytes);
  --under_way_;
  changed_.notify_all();
}

std::optional<Piece> StagingState::next_piece(const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  while (!stop.stop_requested() && !all_done()) {
    // One alone may be larger than all memory that is granted.
    const bool room =
        !waiting_.empty() && (under_way_ == 0 || free_bytes_ >= static_cast<std::int64_t>(waiting_.front().size_bytes));
    if (room) {
      const Piece piece = waiting_.front();
      waiting_.pop_front();
      free_bytes_ -= static_cast<std::int64_t>(piece.size_bytes);
      ++under_way_;
      return piece;
    }
    changed_.wait_until(mutex_, SteadyClock::now() + kLookForStop);
  }
  return std::nullopt;
}

void StagingState::arrived(Arrived arrived) {
  const MutexLock lock(mutex_);
  arrived_.push_back(std::move(arrived));
  changed_.notify_all();
}

std::optional<Arrived> StagingState::next_arrived(const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!arrived_.empty()) {
      Arrived first = std::move(arrived_.front());
      arrived_.pop_front();
      return first;
    }
    if (all_done()) return std::nullopt;
    changed_.wait_until(mutex_, SteadyClock::now() + kLookForStop);
  }
  return std::nullopt;
}

bool StagingState::finished(const Piece& piece) {
  const MutexLock lock(mutex_);
  return --entries_[piece.entry].open_pieces == 0;
}

void StagingState::complete(std::size_t) {
  const MutexLock lock(mutex_);
  ++completed_;
}

bool StagingState::again(std::size_t entry, std::uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  if (std::exchange(entries_[entry].second_time, true)) return false;
  const std::vector<Piece> pieces = pieces_of(entry, size_bytes);
  entries_[entry].open_pieces = pieces.size();
  waiting_.insert(waiting_.begin(), pieces.begin(), pieces.end());
  changed_.notify_all();
  return true;
}

void StagingState::failed(std::size_t entry, const std::string& reason) {
  const MutexLock lock(mutex_);
  if (std::exchange(entries_[entry].failed, true)) return;
  failures_.emplace_back(entry, reason);
  std::erase_if(waiting_, [&](const Piece& piece) { return piece.entry == entry; });
  changed_.notify_all();
}

bool StagingState::has_failed(std::size_t entry) const {
  const MutexLock lock(mutex_);
  return entries_[entry].failed;
}

void StagingState::dropped(const Piece& piece) {
  const MutexLock lock(mutex_);
  release(piece.size_bytes);
}

std::size_t StagingState::completed() const {
  const MutexLock lock(mutex_);
  return completed_;
}

std::vector<std::pair<std::size_t, std::string>> StagingState::failures() const {
  const MutexLock lock(mutex_);
  return failures_;
}

}  // namespace gyre::store
