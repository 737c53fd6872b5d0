#include "gyre/group/messages/internal/mail_segment.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>

#include "gyre/base/check.h"
#include "gyre/base/error.h"

namespace gyre::group::internal {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::uint32_t kReady = 0x4d41494c;

/// A record in a ring: at a multiple of kLineBytes, its payload behind it. `marker` is kReady once all of it is there;
/// before it becomes that, the marker of the place where the next record will begin is 0, whatever lay there before.
struct Record {
  std::atomic<std::uint32_t> marker;
  MailHead head;
};
constexpr std::size_t kHeadBytes = sizeof(Record);
static_assert(kHeadBytes == 48 && kHeadBytes <= kLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free,
              "words shared between processes cannot have locks beside them");

Record& record_at(std::span<std::byte> ring, std::size_t offset) {
  return *reinterpret_cast<Record*>(ring.data() + offset);
}

std::size_t record_bytes_of(std::size_t payload_bytes) {
  return (kHeadBytes + payload_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// All rings of a host together take 4 MB, but for very many ranks.
constexpr std::size_t kAllRingsBytes = std::size_t{4} << 20;
constexpr std::size_t kLongestRingBytes = std::size_t{512} << 10;
constexpr std::size_t kShortestRingBytes = std::size_t{8} << 10;

std::size_t ring_bytes_for(int local_size) {
  const auto pairs = static_cast<std::size_t>(local_size) * static_cast<std::size_t>(local_size - 1);
  return std::clamp(std::bit_floor(kAllRingsBytes / std::max<std::size_t>(pairs, 1)), kShortestRingBytes,
                    kLongestRingBytes);
}

/// The kernel reads the futex as a plain 32-bit word.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& word) { return reinterpret_cast<std::uint32_t*>(&word); }

}  // namespace

void sleep_at(Desk& desk, std::uint32_t observed, std::int64_t longest_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec longest{.tv_sec = longest_ns / kSecond, .tv_nsec = longest_ns % kSecond};
  // Not the private kind: others ring from their processes.
  syscall(SYS_futex, futex_word(desk.doorbell), FUTEX_WAIT, observed, &longest, nullptr, 0);
}

void ring_doorbell(Desk& desk) {
  desk.doorbell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, futex_word(desk.doorbell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

MailWriter::MailWriter(RingControl& control, std::span<std::byte> ring, std::string reader)
    : control_(control), ring_(ring), reader_(std::move(reader)) {
  GYRE_CHECK(std::has_single_bit(ring_.size()));
}

bool MailWriter::find_room(std::size_t needed_bytes) {
  if (needed_bytes <= ring_.size() - (written_ - consumed_)) return true;
  // Acquire: the reader is through with what it has counted.
  const std::uint64_t consumed = control_.consumed.load(std::memory_order_acquire);
  if (consumed > written_ || consumed < consumed_) {
    throw Error(ErrorCode::kProtocol,
                fmt::format("{} claims to have read {} bytes of messages, of {} that were written", reader_, consumed,
                            written_));
  }
  consumed_ = consumed;
  return needed_bytes <= ring_.size() - (written_ - consumed_);
}

void MailWriter::put(std::size_t offset, std::size_t record_bytes, const MailHead& head,
                     std::span<const std::byte> payload) {
  const std::size_t next = (offset + record_bytes) % ring_.size();
  record_at(ring_, next).marker.store(0, std::memory_order_relaxed);
  Record& record = record_at(ring_, offset);
  record.head = head;
  if (!payload.empty()) std::memcpy(ring_.data() + offset + kHeadBytes, payload.data(), payload.size());
  record.marker.store(kReady, std::memory_order_release);
  written_ += record_bytes;
}

bool MailWriter::write(MailHead head, std::span<const std::byte> payload) {
  GYRE_CHECK(payload.size() <= longest_payload());
  head.payload_bytes = static_cast<std::uint32_t>(payload.size());
  const std::size_t record_bytes = record_bytes_of(payload.size());
  std::size_t offset = written_ % ring_.size();
  const std::size_t left = ring_.size() - offset;
  // A record lies in one piece. The line behind it must be free as well, for its marker.
  const bool skips = left < record_bytes;
  if (!find_room((skips ? left : 0) + record_bytes + kLineBytes)) return false;
  if (skips) {
    put(offset, left, {.kind = MailKind::kSkip}, {});
    offset = 0;
  }
  put(offset, record_bytes, head, payload);
  return true;
}

void MailWriter::ask_for_room() {
  control_.starved.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

MailReader::MailReader(RingControl& control, std::span<std::byte> ring, std::string writer)
    : control_(control), ring_(ring), writer_(std::move(writer)) {}

bool MailReader::pending() const {
  const std::size_t offset = position_.load(std::memory_order_relaxed) % ring_.size();
  return record_at(ring_, offset).marker.load(std::memory_order_acquire) != 0 &&
         !stopped_.load(std::memory_order_relaxed);
}

bool MailReader::read(const Take& take) {
  while (pending()) {
    const std::uint64_t position = position_.load(std::memory_order_relaxed);
    const std::size_t offset = position % ring_.size();
    const MailHead head = record_at(ring_, offset).head;
    const std::size_t left = ring_.size() - offset;
    const bool skips = head.kind == MailKind::kSkip;
    if (skips && offset == 0) {  // It would be read again and again.
      throw Error(ErrorCode::kProtocol, fmt::format("{} skips its whole ring of messages", writer_));
    }
    if (!skips && head.payload_bytes > left - kHeadBytes) {
      throw Error(ErrorCode::kProtocol, fmt::format("{} announces {} bytes in a record that has room for {}", writer_,
                                                    head.payload_bytes, left - kHeadBytes));
    }
    if (!skips) take(head, std::span<const std::byte>(ring_).subspan(offset + kHeadBytes, head.payload_bytes));
    const std::uint64_t end = position + (skips ? left : record_bytes_of(head.payload_bytes));
    position_.store(end, std::memory_order_relaxed);
    control_.consumed.store(end, std::memory_order_release);
    if (!skips) return true;
  }
  return false;
}

bool MailReader::writer_is_starved() {
  // Both of us write, then read: we `consumed`, then this; the writer this, then `consumed`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (control_.starved.load(std::memory_order_relaxed) == 0) return false;
  control_.starved.store(0, std::memory_order_seq_cst);
  return true;
}

std::size_t MailSegment::bytes_for(int local_size) {
  const auto ranks = static_cast<std::size_t>(local_size);
  return ranks * sizeof(Desk) + ranks * (ranks - 1) * (sizeof(RingControl) + ring_bytes_for(local_size));
}

MailSegment::MailSegment(std::shared_ptr<net::Segment> segment, int local_size)
    : segment_(std::move(segment)), local_size_(local_size), ring_bytes_(ring_bytes_for(local_size)) {
  GYRE_CHECK(segment_->bytes().size() >= bytes_for(local_size));
}

Desk& MailSegment::desk(int local_rank) const { return reinterpret_cast<Desk*>(segment_->bytes().data())[local_rank]; }

std::size_t MailSegment::ring_place(int from, int to) const {
  GYRE_CHECK(from != to);
  const auto ranks = static_cast<std::size_t>(local_size_);
  const auto column = static_cast<std::size_t>(to < from ? to : to - 1);
  const std::size_t number = static_cast<std::size_t>(from) * (ranks - 1) + column;
  return ranks * sizeof(Desk) + number * (sizeof(RingControl) + ring_bytes_);
}

RingControl& MailSegment::control(int from, int to) const {
  return *reinterpret_cast<RingControl*>(segment_->bytes().data() + ring_place(from, to));
}

std::span<std::byte> MailSegment::ring(int from, int to) const {
  return segment_->bytes().subspan(ring_place(from, to) + sizeof(RingControl), ring_bytes_);
}

}  // namespace gyre::group::internal
