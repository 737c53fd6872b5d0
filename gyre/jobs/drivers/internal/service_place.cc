#include "gyre/jobs/drivers/internal/service_place.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/jobs/orders/work_order.h"

namespace gyre::jobs::drivers {

namespace fs = std::filesystem;

void write_text(const fs::path& file, const std::string& text) { write_file_atomically(file, as_bytes(text)); }

std::string first_line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::string request_name(const std::string& attempt) { return "gyre-" + attempt; }

std::string registered_name(const std::string& attempt, int node) { return fmt::format("{}-{}", attempt, node); }

fs::path node_root(const EngineOptions& options, const std::string& attempt) {
  return options.node_folder / ("gyre-" + attempt);
}

std::string name_of_service(const Home& home) {
  const fs::path file = home.name();
  std::string name = first_line_of(file);
  if (!orders::is_plain_name(name)) {
    name = hex_of(net::make_random_key()).substr(0, 16);
    write_text(file, name + "\n");
  }
  return name;
}

fs::path own_shared_folder(const EngineOptions& options, const std::string& name) {
  if (options.shared_folder.empty()) return {};
  std::error_code failure;
  if (!fs::is_directory(options.shared_folder, failure)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("driverOptions.shared_folder: {} is not a directory on the service's host",
                            options.shared_folder.string()));
  }
  const fs::path own = options.shared_folder / ("gyre-" + name);
  fs::create_directories(own);
  // Jobs may run as another user and have to reach their own part.
  fs::permissions(own, fs::perms(0711));
  return own;
}

Home made_home(const EngineOptions& options, const std::string& kind) {
  Home home(options.folder, kind);
  fs::create_directories(home.attempts());
  fs::permissions(home.attempts(), fs::perms::owner_all);  // Engines keep the keys of attempts there.
  return home;
}

std::string own_address(const EngineOptions& options) {
  if (!options.address.empty()) return options.address;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw system_error("cannot tell this host's name", errno);
  return name.data();
}

namespace {

hub::HubOptions hub_options(const EngineOptions& options, const net::JobKey& key, int port) {
  hub::HubOptions hub;
  const std::string address = own_address(options);
  // A host's own name often leads to itself alone.
  hub.endpoint = {net::Endpoint::Kind::kTcp, orders::is_numeric_address(address) ? address : "0.0.0.0",
                  static_cast<std::uint16_t>(port)};
  hub.key = key;
  hub.lease = options.lease;
  hub.margin = options.margin;
  hub.longest_start = std::chrono::milliseconds(0);  // An attempt may wait in an engine's queue for days.
  hub.logs = options.logs;
  hub.logger = options.logger;
  return hub;
}

}  // namespace

std::unique_ptr<hub::Hub> make_hub(const EngineOptions& options, const net::JobKey& key, const Home& home) {
  if (options.port != 0) return std::make_unique<hub::Hub>(hub_options(options, key, options.port));
  const std::string before = first_line_of(home.port());
  int port = 0;
  std::from_chars(before.data(), before.data() + before.size(), port);
  if (port > 0 && port <= 65'535) {
    try {
      return std::make_unique<hub::Hub>(hub_options(options, key, port));
    } catch (const Error& error) {
      options.logger->warn("{}; the nodes of jobs that run look for this service there, and end their jobs",
                           error.what());
    }
  }
  return std::make_unique<hub::Hub>(hub_options(options, key, 0));
}

}  // namespace gyre::jobs::drivers
