#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gyre/net/segment.h"

namespace gyre::group::internal {

// The memory through which the ranks of one host send each other messages: a desk for each rank and a ring of records
// for each ordered pair. Zero is the right first value of every word. Whatever lies there was written by another rank:
// it is copied before it is checked, and checked before it is used.

/// Who sees that a record has come in for a rank. Written by the rank; a sender that has to do something about it sets
/// it to kLookedAt, so that only one does.
enum class Attention : std::uint32_t {
  kLookedAt = 0,    ///< A thread looks all the time.
  kAsleep = 1,      ///< A thread sleeps on `doorbell`.
  kUnattended = 2,  ///< The service thread sleeps in poll(2) and wants a frame over the link.
  kSoon = 3,        ///< The service thread looks within a millisecond.
};

/// A rank's words that the others read.
struct alignas(128) Desk {
  std::atomic<Attention> attention;
  std::atomic<std::uint32_t> doorbell;       ///< The futex.
  std::atomic<std::uint32_t> closed;         ///< Not 0: what it sends may be gone from its memory.
  std::atomic<std::uint32_t> processor;      ///< On which it waited last, plus 1.
  std::atomic<std::uint64_t> probe_address;  ///< Where `probe_value` can be read in its process.
  std::atomic<std::uint64_t> probe_value;
};

/// Sleeps until somebody rings, at most `longest_ns`; returns at once when the doorbell is not `observed` any more.
void sleep_at(Desk& desk, std::uint32_t observed, std::int64_t longest_ns);
void ring_doorbell(Desk& desk);

enum class MailKind : std::uint8_t {
  kSkip = 1,    ///< The ring goes on at its beginning.
  kOffer = 2,   ///< Sender: a message waits. The payload is all of it or nothing.
  kTaken = 3,   ///< Receiver: it is here.
  kRefuse = 4,  ///< Receiver: it does not fit. The payload is the reason, for people.
  kAccept = 5,  ///< Receiver: send it in pieces.
  kPiece = 6,   ///< Sender: the next bytes of it.
};

/// What a record says. `number` is the sender's number of the message.
struct MailHead {
  std::uint64_t number = 0;
  std::int64_t tag = 0;          ///< This and the next three: of an offer.
  std::uint64_t size_bytes = 0;  ///< Of the message.
  std::uint64_t address = 0;     ///< Where it lies in the sender's process.
  std::uint32_t payload_bytes = 0;
  MailKind kind{};
  std::uint8_t type = 0;
};

/// A ring's words beside its records.
struct alignas(128) RingControl {
  std::atomic<std::uint64_t> consumed;  ///< Bytes, ever; written by the reader.
  std::atomic<std::uint32_t> starved;  ///< 1: the writer waits for room. The reader sets it to 0 and alerts the writer.
};

/// One ring, as its writer sees it. One thread at a time.
class MailWriter {
 public:
  /// `ring`: a power of two of bytes. `reader` names its reader in errors.
  MailWriter(RingControl& control, std::span<std::byte> ring, std::string reader);

  /// A payload up to here finds room some time.
  std::size_t longest_payload() const { return ring_.size() / 4; }
  /// False where there is no room for it. Sets `head.payload_bytes`. Error(kProtocol) where the reader claims to have
  /// read what was never written.
  bool write(MailHead head, std::span<const std::byte> payload);
  /// After a write() that was false: the reader will say when there is room. Write once more, in case it was quicker.
  void ask_for_room();
  /// Whether the reader has answered ask_for_room(). Any thread.
  bool room_was_made() const { return control_.starved.load(std::memory_order_acquire) == 0; }

 private:
  bool find_room(std::size_t needed_bytes);
  void put(std::size_t offset, std::size_t record_bytes, const MailHead& head, std::span<const std::byte> payload);

  RingControl& control_;
  const std::span<std::byte> ring_;
  const std::string reader_;
  std::uint64_t written_ = 0;   // Bytes, ever.
  std::uint64_t consumed_ = 0;  // As last seen.
};

/// One ring, as its reader sees it. One thread at a time, but for pending() and stop().
class MailReader {
 public:
  MailReader(RingControl& control, std::span<std::byte> ring, std::string writer);

  /// Whether read() would find a record.
  bool pending() const;
  /// A record: what it says (a copy), and its payload, which lies in shared memory and may change while it is read.
  using Take = std::function<void(const MailHead& head, std::span<const std::byte> payload)>;
  /// False when there is none. Error(kProtocol), and what `take` throws.
  bool read(const Take& take);
  /// Whether the writer waits for room that there is now; asked for once.
  bool writer_is_starved();
  /// pending() is false from here on.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }

 private:
  RingControl& control_;
  const std::span<std::byte> ring_;
  const std::string writer_;
  std::atomic<std::uint64_t> position_{0};  // Bytes read, ever.
  std::atomic<bool> stopped_{false};
};

/// Where desks and rings are in the segment. A view that keeps the segment mapped.
class MailSegment {
 public:
  static std::size_t bytes_for(int local_size);

  MailSegment(std::shared_ptr<net::Segment> segment, int local_size);

  Desk& desk(int local_rank) const;
  RingControl& control(int from, int to) const;
  std::span<std::byte> ring(int from, int to) const;

 private:
  std::size_t ring_place(int from, int to) const;

  std::shared_ptr<net::Segment> segment_;
  int local_size_;
  std::size_t ring_bytes_;
};

}  // namespace gyre::group::internal
