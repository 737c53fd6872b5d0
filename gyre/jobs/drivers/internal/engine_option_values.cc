#include "gyre/jobs/drivers/internal/engine_option_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "gyre/base/error.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers {

namespace {

struct Option {
  const std::string& kind;
  const std::string& name;
  const std::string& text;
};

int number(const Option& option, int low, int high) {
  const std::string& text = option.text;
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < low || value > high) {
    refuse_option(option.kind, option.name, fmt::format("must be a number from {} to {}, not '{}'", low, high, text));
  }
  return value;
}

std::filesystem::path folder(const Option& option) {
  if (!option.text.starts_with('/')) {
    refuse_option(option.kind, option.name, fmt::format("must be an absolute path, not '{}'", option.text));
  }
  return std::filesystem::path(option.text).lexically_normal();
}

}  // namespace

void refuse_option(const std::string& kind, const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("driverOptions.{} of driver '{}' {}", name, kind, why));
}

const std::vector<std::string>& common_option_names() {
  static const std::vector<std::string> kNames = {"shared_folder", "node_folder", "address",
                                                  "port",          "gyre",        "lease_seconds"};
  return kNames;
}

void check_lines(const std::string& kind, const OptionValues& values) {
  for (const auto& [name, value] : values) {
    if (value.empty() || std::ranges::any_of(value, [](unsigned char c) { return c < ' '; })) {
      refuse_option(kind, name, "must be a line of text");
    }
  }
}

bool set_common_option(const std::string& kind, const std::string& name, const std::string& value,
                       EngineOptions& options) {
  const Option option{kind, name, value};
  if (name == "shared_folder") {
    options.shared_folder = folder(option);
  } else if (name == "node_folder") {
    options.node_folder = folder(option);
  } else if (name == "address") {
    if (!orders::is_address(value)) {
      refuse_option(kind, name, fmt::format("must be an address or a host name, not '{}'", value));
    }
    options.address = value;
  } else if (name == "port") {
    options.port = number(option, 1, 65'535);
  } else if (name == "gyre") {
    options.gyre = value;
  } else if (name == "lease_seconds") {
    options.lease = std::chrono::seconds(number(option, 2, 3'600));
  } else {
    return false;
  }
  return true;
}

}  // namespace gyre::jobs::drivers
