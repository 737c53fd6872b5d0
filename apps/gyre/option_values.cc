#include "apps/gyre/option_values.h"

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "apps/gyre/run_command.h"
#include "gyre/base/parse.h"
#include "gyre/launch/console.h"

namespace gyre::app {

namespace {

/// The one above is Gyre's own.
constexpr int kHighestPort = 65'534;
constexpr int kAllStreams = 3;

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool consists_of(std::string_view text, std::initializer_list<std::string_view> alphabets) {
  return std::all_of(text.begin(), text.end(), [&](char letter) {
    return std::any_of(alphabets.begin(), alphabets.end(),
                       [&](std::string_view alphabet) { return alphabet.find(letter) != std::string_view::npos; });
  });
}

bool is_host_name(std::string_view text) { return !text.empty() && consists_of(text, {kDigits, kLetters, ".-_"}); }

/// With a zone, as in fe80::1%eth0.
bool is_address_with_colons(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2 && consists_of(text, {kDigits, kLetters, ":.%-_"});
}

}  // namespace

Endpoint parse_host_and_port(const std::string& text, const std::string& option, int lowest_port) {
  const bool bracketed = text.starts_with('[');
  const std::size_t host_end = bracketed ? text.find(']') : text.find(':');
  const std::string host =
      bracketed ? text.substr(1, host_end == std::string::npos ? host_end : host_end - 1) : text.substr(0, host_end);
  const std::string rest = host_end == std::string::npos ? "" : text.substr(host_end + (bracketed ? 1 : 0));
  if (!bracketed && is_address_with_colons(text)) {
    throw UsageError(fmt::format("{} is '{}'; an IPv6 address needs brackets, as in [::1]:29500", option, text));
  }
  const bool host_makes_sense =
      bracketed ? host_end != std::string::npos && is_address_with_colons(host) : is_host_name(host);
  if (!host_makes_sense || (!rest.empty() && !rest.starts_with(':'))) {
    throw UsageError(fmt::format("{} is '{}', which is not HOST:PORT, as in node1:29500", option, text));
  }
  if (rest.empty()) return {host, std::nullopt};
  return {host,
          static_cast<int>(parse_integer(rest.substr(1), fmt::format("{}'s port", option), lowest_port, kHighestPort))};
}

std::string parse_host(const std::string& text, const std::string& option) {
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  const std::string host = bracketed ? text.substr(1, text.size() - 2) : text;
  if (is_address_with_colons(host) || (!bracketed && is_host_name(host))) return host;
  throw UsageError(fmt::format("{} is '{}', which is not a host name or address", option, text));
}

std::string place_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::vector<int> parse_streams(const std::string& text, const std::string& option, int ranks) {
  const auto streams_of = [&](std::string_view digit) {
    if (digit.size() == 1 && digit[0] >= '0' && digit[0] <= '0' + kAllStreams) return digit[0] - '0';
    throw UsageError(
        fmt::format("{} is '{}'; 1 (stdout), 2 (stderr), 3 (both) or 0 is needed, or that by local rank, as in 0:1,1:2",
                    option, text));
  };
  if (text.find(':') == std::string::npos) {
    return std::vector<int>(static_cast<std::size_t>(ranks), streams_of(text));
  }
  std::vector<int> streams(static_cast<std::size_t>(ranks), 0);
  for (const std::string& entry : split(text, ',')) {
    const std::size_t colon = entry.find(':');
    const int named = streams_of(colon == std::string::npos ? "" : entry.substr(colon + 1));
    const auto rank =
        parse_integer(entry.substr(0, colon), fmt::format("{}'s rank", option), 0, launch::kMostRanksPerHost - 1);
    if (rank < ranks) streams[static_cast<std::size_t>(rank)] = named;
  }
  return streams;
}

std::vector<bool> parse_ranks(const std::string& text, const std::string& option, int ranks) {
  std::vector<bool> named(static_cast<std::size_t>(ranks), false);
  for (const std::string& entry : split(text, ',')) {
    const auto rank = parse_integer(entry, fmt::format("a rank of {}", option), 0, launch::kMostRanksPerHost - 1);
    if (rank < ranks) named[static_cast<std::size_t>(rank)] = true;
  }
  return named;
}

std::string parse_log_level(const std::string& text, const std::string& option) {
  constexpr std::array<std::string_view, 6> kLevels = {"trace", "debug", "info", "warning", "error", "off"};
  std::string level = text;
  std::transform(level.begin(), level.end(), level.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  if (level == "fatal") return "error";
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    throw UsageError(fmt::format("{} is '{}'; one of {} is needed", option, text, fmt::join(kLevels, " ")));
  }
  return level;
}

void check_signals(const std::string& text, const std::string& option) {
  constexpr std::array<std::string_view, 4> kHandedOn = {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"};
  for (const std::string& name : split(text, ',')) {
    if (std::find(kHandedOn.begin(), kHandedOn.end(), name) != kHandedOn.end()) continue;
    throw UsageError(
        fmt::format("{} names '{}'; only {} are passed on to the ranks", option, name, fmt::join(kHandedOn, ", ")));
  }
}

std::optional<std::string> reason_for_refusal(const std::string& option) {
  constexpr std::string_view kElastic = "elastic jobs are not supported; give the number of ranks with -np";
  struct Refusal {
    std::string_view option;
    std::string_view reason;
  };
  constexpr std::array kRefusals = {
      Refusal{"--min-np", kElastic},
      Refusal{"--max-np", kElastic},
      Refusal{"--min-num-proc", kElastic},
      Refusal{"--max-num-proc", kElastic},
      Refusal{"--slots-per-host", kElastic},
      Refusal{"--elastic-timeout", kElastic},
      Refusal{"--reset-limit", kElastic},
      Refusal{"--blacklist-cooldown-range", kElastic},
      Refusal{"--host-discovery-script", "hosts are named with -H or --hostfile, and stay the same"},
      Refusal{"--config-file", "horovodrun's settings file is not supported; give the settings as options"},
      Refusal{"--check-build", "`gyre doctor` says what was built and found"},
      Refusal{"-cb", "`gyre doctor` says what was built and found"},
      Refusal{"--jsrun", "LSF's jsrun is not used; -H starts the ranks over ssh"},
      Refusal{"--virtual-local-rank", "ranks compute on the CPU, and LOCAL_RANK is always their own"},
      Refusal{"--duplicate-stdout-filters", "lines are not copied by what they say; --log-dir keeps all of them"},
      Refusal{"--duplicate-stderr-filters", "lines are not copied by what they say; --log-dir keeps all of them"},
  };
  const auto* const found = std::find_if(kRefusals.begin(), kRefusals.end(),
                                         [&](const Refusal& refusal) { return refusal.option == option; });
  if (found == kRefusals.end()) return std::nullopt;
  return std::string(found->reason);
}

}  // namespace gyre::app
