#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

#include "gyre/base/clock.h"

namespace gyre::data {

/// Where the time of a sample goes.
enum class Stage {
  kSource,     ///< Opening and reading files.
  kInflate,    ///< Decompression.
  kDecode,     ///< Checksums, the format's structure, and images.
  kTransform,  ///< Crop, resize, flip and normalise of images.
  kAssemble,   ///< Converting other values into their place in a batch.
};

inline constexpr std::size_t kStages = 5;
inline constexpr std::array<std::string_view, kStages> kStageNames = {"source", "inflate", "decode", "transform",
                                                                      "assemble"};

/// By stage.
struct StageTimes {
  std::array<std::chrono::nanoseconds, kStages> spent{};

  StageTimes& operator+=(const StageTimes& other) {
    for (std::size_t i = 0; i < kStages; ++i) spent[i] += other.spent[i];
    return *this;
  }
  std::chrono::nanoseconds total() const {
    std::chrono::nanoseconds sum{0};
    for (const auto& time : spent) sum += time;
    return sum;
  }
};

/// Counts the time since the last call, or since it was made, for the stage that it is told.
class StageClock {
 public:
  explicit StageClock(StageTimes& times) : times_(times) {}

  void finish(Stage stage) {
    const auto now = SteadyClock::now();
    times_.spent.at(static_cast<std::size_t>(stage)) += now - since_;
    since_ = now;
  }

 private:
  StageTimes& times_;
  SteadyClock::time_point since_ = SteadyClock::now();
};

}  // namespace gyre::data
