#include "gyre/jobs/drivers/internal/orders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/secret_key.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/node/mounts.h"
#include "gyre/jobs/orders/secure_connection.h"

namespace gyre::jobs::drivers {

namespace {

constexpr std::size_t kMostKeyBytes = 1024;

}  // namespace

net::JobKey key_in(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    const UniqueFd made(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!made) throw system_error(fmt::format("cannot write {}", file.string()), errno);
    std::string digits = hex_of(net::make_random_key());
    const WipedAtEnd wiped(digits);
    write_all(made.get(), as_bytes(digits), file.string());
  }
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!opened || ::fstat(opened.get(), &status) != 0) throw system_error(file.string(), errno);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("others than its user can read {}, the key of the agents; `chmod 600 {}`, or remove it, "
                            "and the jobs that run now start again under a new one",
                            file.string(), file.string()));
  }
  Bytes bytes = read_secret(opened.get(), kMostKeyBytes, file.string());
  const WipedAtEnd wiped(bytes);
  try {
    return orders::key_from_hex(as_text(bytes));
  } catch (const Error&) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{} is damaged: it should be the key of the agents, 64 hexadecimal digits. Take the file from "
                    "a backup, or remove it and start the server again, and the jobs that run now start again "
                    "under a new one",
                    file.string()));
  }
}

std::string key_of_attempt(const net::JobKey& key, const std::string& attempt) {
  return hex_of(derive_key(key, "attempt " + attempt));
}

void make_log_folder(const std::filesystem::path& store, const orders::WorkOrder& order,
                     const node::NodeFolders& folders) {
  if (!order.sends_logs) return;
  const auto environment = node::job_environment(order, folders, {{"HOME", folders.job(order.job_name)}});
  if (node::keeps_logs_on_node(order, folders, environment)) hub::make_log_folder(store, order);
}

std::string one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text.replace(at, 1, " | ");
  return text;
}

void check_order(const orders::WorkOrder& order, const node::NodeFolders& folders) {
  for (const orders::NodePlace& node : order.nodes) {
    if (orders::is_plain_name(node.id) && orders::is_plain_name(node.registered_name())) continue;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' cannot be the name of a node", node.id));
  }
  if (static_cast<int>(order.nodes.size()) != order.job.node_count) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the job needs {} nodes and was given {}", order.job.node_count, order.nodes.size()));
  }
  const node::MountPlan mounts = node::plan_mounts(order, folders);
  node::check_places(order, folders, node::job_environment(order, folders, {{"HOME", folders.job(order.job_name)}}),
                     mounts);
}

}  // namespace gyre::jobs::drivers
