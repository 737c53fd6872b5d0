#include "gyre/jobs/catalog/catalog.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "gyre/base/clock.h"
#include "gyre/jobs/catalog/internal/schema.h"
#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {
namespace {

/// A service that is killed while it starts a program leaves a process that has the lock until it becomes that program.
constexpr std::chrono::seconds kLongestInheritance{5};
constexpr int kLockPauseMs = 10;

/// Whether there is a process of that number; a word that is no number counts as one.
bool is_alive(const char* number) {
  const long pid = std::strtol(number, nullptr, 10);
  return pid <= 0 || ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

/// Two services with one catalog would each start what the other one started. The lock goes with its process.
UniqueFd take_lock(const std::filesystem::path& path) {
  const std::string lock_path = path.string() + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) {
    throw system_error(fmt::format("catalog {}: {} cannot be written; check who owns its folder, and whether the file "
                                   "system is read-only",
                                   path.string(), lock_path),
                       errno);
  }
  const Deadline deadline = Deadline::after(kLongestInheritance);
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> owner{};
    const ssize_t size = ::pread(lock.get(), owner.data(), owner.size() - 1, 0);
    const bool is_dead = size > 0 && !is_alive(owner.data());
    if (is_dead && !deadline.passed()) {
      ::poll(nullptr, 0, kLockPauseMs);
      continue;
    }
    throw Error(ErrorCode::kUnsupported,
                fmt::format("catalog {} is in use by process {}; end that one first, or use another catalog",
                            path.string(), size > 0 ? owner.data() : "(unknown)"));
  }
  const std::string self = std::to_string(::getpid());
  // Only for the message above: on a full disk it does without.
  if (::ftruncate(lock.get(), 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(lock.get(), self.data(), self.size(), 0);
  return lock;
}

}  // namespace

Catalog::Catalog(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Catalog::~Catalog() = default;
Catalog::Catalog(Catalog&& other) noexcept = default;

Catalog Catalog::open(const std::filesystem::path& path, CatalogOptions options) {
  if (!options.now) options.now = wall_clock_us;
  auto store = std::make_unique<Store>(take_lock(path), path, std::move(options.now));
  migrate(store->database, schema_steps());
  return Catalog(std::move(store));
}

void Catalog::back_up(const std::filesystem::path& path, const std::filesystem::path& copy) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    throw Error(ErrorCode::kNotFound, fmt::format("there is no catalog {}", path.string()));
  }
  if (std::filesystem::exists(std::filesystem::symlink_status(copy, failure))) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} exists; name a new file for the backup", copy.string()));
  }
  Database(path, Database::Access::kRead).copy_to(copy);
}

Catalog Catalog::open_to_read(const std::filesystem::path& path) {
  return Catalog(std::make_unique<Store>(UniqueFd(), path, wall_clock_us, Database::Access::kRead));
}

void Catalog::begin_reading() { store_->database.execute("BEGIN"); }
void Catalog::end_reading() { store_->database.execute("ROLLBACK"); }

Unconfirmed Catalog::unconfirmed() {
  Unconfirmed found;
  for (Attempt& attempt : attempts().unended()) {
    if (attempt.state != AttemptState::kStarted) found.attempts.push_back(std::move(attempt));
  }
  for (Node& node : nodes().list()) {
    if (node.state == NodeState::kAllocating || node.state == NodeState::kLeaving)
      found.nodes.push_back(std::move(node));
  }
  found.jobs = jobs().deleting();
  found.clusters = clusters().deleting();
  return found;
}

std::uint64_t Catalog::rows_read() const { return store_->database.rows_read(); }

void Catalog::together(const std::function<void()>& work) {
  Transaction transaction(store_->database);
  work();
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
