#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
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

/// Names remembered per direction; later ones travel in full each time.
constexpr std::uint32_t kMostRememberedNames = 1U << 16;

/// What one announcement message says.
struct AnnouncementContent {
  std::vector<Announced> operations;
  bool leaving = false;
  std::optional<JoinAnnouncement> join{};
  std::vector<PlanStep> steps{};
  std::optional<StalledStep> stalled_step{};
  std::optional<StallAnswer> stall_answer{};
  std::vector<DisputedRows> disputes{};
};

/// What rank `rank` of `size` says of its own operation.
Announced announcement_of(const Request& request, int rank, int size);

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
