#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gyre/base/bytes.h"
#include "gyre/engine/internal/open/order.h"
#include "gyre/engine/internal/stall/stall_inquiry.h"

// What travels between a rank and the coordinator (negotiation.fbs). Both directions compress: what was said once
// in full is a number afterwards. Each side's memory is fed only by what the other one sent, in order, so the two
// cannot disagree. Nothing here is thread-safe.

namespace gyre::engine::internal {

/// Types of net::Message on a negotiation link.
constexpr std::uint16_t kAnnouncementMessage = 1;
constexpr std::uint16_t kOrderMessage = 2;
/// A rank on the way to the coordinator has left in good order; the payload is the text of an Error(kPeerLeft).
constexpr std::uint16_t kEndMessage = 3;

/// Names remembered per direction; later ones travel in full each time.
constexpr std::uint32_t kMostRememberedNames = 1U << 16;

/// What a rank reports of itself.
struct RankNote {
  bool leaving = false;
  std::optional<JoinAnnouncement> join{};
  std::vector<PlanStep> steps{};
  std::optional<StalledStep> stalled_step{};
  std::optional<StallAnswer> stall_answer{};
  std::vector<DisputedRows> disputes{};

  bool empty() const {
    return !leaving && !join && steps.empty() && !stalled_step && !stall_answer && disputes.empty();
  }
};

/// The same, passed on by another rank.
struct RelayedNote {
  int rank = 0;
  RankNote note{};
};

/// What one announcement message says.
struct AnnouncementContent : RankNote {
  AnnouncementContent() = default;
  AnnouncementContent(std::vector<Announced> announced, bool leaves) : operations(std::move(announced)) {
    leaving = leaves;
  }

  std::vector<Announced> operations;
  std::vector<RelayedNote> relayed;  ///< By an inner rank of the negotiation's tree, later than the operations.
};

/// What rank `rank` of `size` says of its own operation.
Announced announcement_of(const Request& request, int rank, int size);

/// What a kEndMessage says.
Error decode_end(std::span<const std::byte> payload);

class AnnouncementEncoder {
 public:
  Bytes encode(const AnnouncementContent& content);

 private:
  struct Known {
    std::uint32_t number;
    Signature signature;
    RowCounts rows;
  };
  std::unordered_map<std::string, Known> known_;
  std::uint32_t last_number_ = 0;
};

/// Error(kProtocol) for anything that AnnouncementEncoder would not have written.
class AnnouncementDecoder {
 public:
  AnnouncementContent decode(std::span<const std::byte> bytes);

 private:
  std::unordered_map<std::uint32_t, Announced> known_;
};

class OrderEncoder {
 public:
  Bytes encode(const Order& order);

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// Error(kProtocol) likewise.
class OrderDecoder {
 public:
  Order decode(std::span<const std::byte> bytes);

 private:
  std::unordered_map<std::uint32_t, std::string> names_;
};

}  // namespace gyre::engine::internal
