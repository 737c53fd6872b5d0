#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/jobs/drivers/slurm/driver.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers::slurm {

namespace {

/// Those of sbatch that a site may need; their words are Slurm's to judge.
constexpr std::array<std::string_view, 10> kOfSbatch = {"partition",   "account",  "qos",  "constraint", "gres",
                                                        "reservation", "nodelist", "time", "exclude",    "mem"};
constexpr std::array<std::string_view, 6> kOurs = {"shared_folder", "node_folder", "address",
                                                   "port",          "gyre",        "lease_seconds"};

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("driverOptions.{} of driver 'slurm' {}", name, why));
}

int number(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < low || value > high) {
    refuse(name, fmt::format("must be a number from {} to {}, not '{}'", low, high, text));
  }
  return value;
}

std::filesystem::path folder(const std::string& name, const std::string& text) {
  if (!text.starts_with('/')) refuse(name, fmt::format("must be an absolute path, not '{}'", text));
  return std::filesystem::path(text).lexically_normal();
}

}  // namespace

SlurmOptions options_from(const std::map<std::string, std::string>& driver_options) {
  SlurmOptions options;
  for (const auto& [name, value] : driver_options) {
    if (value.empty() || std::ranges::any_of(value, [](unsigned char c) { return c < ' '; })) {
      refuse(name, "must be a line of text");
    }
    if (std::ranges::find(kOfSbatch, name) != kOfSbatch.end()) {
      options.sbatch[name] = value;
    } else if (name == "shared_folder") {
      options.shared_folder = folder(name, value);
    } else if (name == "node_folder") {
      options.node_folder = folder(name, value);
    } else if (name == "address") {
      if (!orders::is_address(value)) refuse(name, fmt::format("must be an address or a host name, not '{}'", value));
      options.address = value;
    } else if (name == "port") {
      options.port = number(name, value, 1, 65'535);
    } else if (name == "gyre") {
      options.gyre = value;
    } else if (name == "lease_seconds") {
      options.lease = std::chrono::seconds(number(name, value, 2, 3'600));
    } else {
      refuse(name, fmt::format("is not known; there are {} and, for sbatch, {}", fmt::join(kOurs, ", "),
                               fmt::join(kOfSbatch, ", ")));
    }
  }
  return options;
}

}  // namespace gyre::jobs::drivers::slurm
