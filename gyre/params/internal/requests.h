#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gyre::params::internal {

/// What a worker asks of a server. Each request is a message of kRequestBytes, followed by what the kind says.
enum class RequestKind : std::uint8_t {
  kConfigure = 1,  ///< Followed by a setup, as payload. First of all.
  kSet = 2,        ///< Followed by the parameters, a message for each of the server's blocks, and for a table those of
                   ///< its pieces; then by the optimizer's state, if that is said. At a meeting, by one worker.
  kPull = 3,       ///< Answered with the parameters, likewise, when they have been set.
  kStep = 4,       ///< Followed by StepNotes, as payload, if there are any, and by the gradients, a message for each
                   ///< block, of tables of rows; answered with what has become of the parameters, likewise, but for
                   ///< tables with the number of the rows that have changed, and these. With a quorum server 0 sends
                   ///< the verdict, too.
  kStepInPlace = 5,  ///< As kStep, but the gradients and the answers are in SharedValues: empty messages say that a
                     ///< block is complete.
  kSum = 6,          ///< Followed by float64 values, as payload, and answered with as many. Server 0 alone.
  kLeave = 7,        ///< The last one.
  kAnnounce = 8,     ///< Answered with a verdict that admits the worker's gradient or refuses it. Server 0 alone.
  kPause = 9,        ///< In bounded training: until kResume or kPull nobody waits for this worker.
  kResume = 10,      ///< Answered with an empty payload.
  kState = 11,       ///< Answered with the optimizer's state, as kSet is followed by it.
};

struct Request {
  RequestKind kind = RequestKind::kLeave;
  std::uint64_t payload_bytes = 0;  ///< Of kConfigure, steps and kSum.
  std::uint64_t step = 0;           ///< Of a step: the worker's own, from 1. Of kSum: which Meeting. Of kSet: 1 if the
                                    ///< optimizer's state follows.
};

inline constexpr std::size_t kRequestBytes = 24;
inline constexpr std::uint64_t kMostPayloadBytes = std::uint64_t{64} << 20;
std::array<std::byte, kRequestBytes> encode(const Request& request);
/// Error(kProtocol) for what is not a request.
Request decode_request(std::span<const std::byte> bytes);

// Of the messages, in both directions.
inline constexpr std::uint8_t kBytesType = 0;
inline constexpr std::uint8_t kInPlaceType = 1;  // Empty: what it stands for is in SharedValues.
inline constexpr std::int64_t kRequestTag = 0;
inline constexpr std::int64_t kPayloadTag = 1;
inline constexpr std::int64_t kBroadcastTag = 2;  // Between workers.
inline constexpr std::int64_t kReadyTag = 3;      // Between servers; see Verdicts.
inline constexpr std::int64_t kVerdictTag = 4;    // Likewise, and from server 0 to the workers.
/// `block` counts all servers' blocks.
inline constexpr std::int64_t tag_of_block(std::size_t block) { return 5 + static_cast<std::int64_t>(block); }

}  // namespace gyre::params::internal
