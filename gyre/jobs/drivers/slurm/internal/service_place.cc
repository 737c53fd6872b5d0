#include "gyre/jobs/drivers/slurm/internal/service_place.h"

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

namespace gyre::jobs::drivers::slurm {

namespace fs = std::filesystem;

void write_text(const fs::path& file, const std::string& text) { write_file_atomically(file, as_bytes(text)); }

std::string first_line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

std::string name_of_service(const SlurmOptions& options) {
  fs::create_directories(options.folder);
  const fs::path file = options.folder / "name";
  std::string name = first_line_of(file);
  if (!orders::is_plain_name(name)) {
    name = hex_of(net::make_random_key()).substr(0, 16);
    write_text(file, name + "\n");
  }
  return name;
}

fs::path own_shared_folder(const SlurmOptions& options, const std::string& name) {
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

Home home_of(const SlurmOptions& options) {
  Home home(options.folder);
  fs::create_directories(home.attempts());
  fs::permissions(home.attempts(), fs::perms::owner_all);  // Scripts hold the keys of attempts.
  return home;
}

std::string own_address(const SlurmOptions& options) {
  if (!options.address.empty()) return options.address;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) throw system_error("cannot tell this host's name", errno);
  return name.data();
}

namespace {

hub::HubOptions hub_options(const SlurmOptions& options, const net::JobKey& key, int port) {
  hub::HubOptions hub;
  const std::string address = own_address(options);
  // A host's own name often leads to itself alone.
  hub.endpoint = {net::Endpoint::Kind::kTcp, orders::is_numeric_address(address) ? address : "0.0.0.0",
                  static_cast<std::uint16_t>(port)};
  hub.key = key;
  hub.lease = options.lease;
  hub.margin = options.margin;
  hub.longest_start = std::chrono::milliseconds(0);  // An attempt may wait in Slurm's queue for days.
  hub.logs = options.logs;
  hub.logger = options.logger;
  return hub;
}

}  // namespace

std::unique_ptr<hub::Hub> make_hub(const SlurmOptions& options, const net::JobKey& key, const Home& home) {
  if (options.port != 0) return std::make_unique<hub::Hub>(hub_options(options, key, options.port));
  const std::string before = first_line_of(home.port());
  int port = 0;
  std::from_chars(before.data(), before.data() + before.size(), port);
  if (port > 0 && port <= 65'535) {
    try {
      return std::make_unique<hub::Hub>(hub_options(options, key, port));
    } catch (const Error& error) {
      options.logger->warn("{}; the nodes of jobs that run on Slurm look for this service there, and end their jobs",
                           error.what());
    }
  }
  return std::make_unique<hub::Hub>(hub_options(options, key, 0));
}

}  // namespace gyre::jobs::drivers::slurm
