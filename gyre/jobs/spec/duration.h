#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace gyre::jobs::spec {

/// ISO 8601 without years and months, whose length depends on the date ("P7D", "P1DT12H", "PT1.5S", "P2W"), or .NET's
/// time span ("7.00:00:00", "12:30", "00:00:10.5"). A part of a second counts as a whole one. Nothing for other texts,
/// for negative durations, and for those of a thousand years or more.
std::optional<std::chrono::seconds> parse_duration(std::string_view text);

/// ISO 8601: "P7D", "PT1H30M", "PT0S". Not negative.
std::string iso_8601_duration(std::chrono::seconds duration);

}  // namespace gyre::jobs::spec
