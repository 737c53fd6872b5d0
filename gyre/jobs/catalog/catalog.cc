#include "gyre/jobs/catalog/catalog.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "gyre/base/clock.h"
#include "gyre/base/process_stat.h"
#include "gyre/jobs/catalog/internal/repair.h"
#include "gyre/jobs/catalog/internal/schema.h"
#include "gyre/jobs/catalog/internal/store.h"

namespace gyre::jobs::catalog {
namespace {

/// A service that is killed while it starts a program leaves a process that has the lock until it becomes that program.
constexpr std::chrono::seconds kLongestInheritance{5};
constexpr int kLockPauseMs = 10;
/// A service that starts, and finds what a killed one has left, keeps the file to itself for moments.
constexpr std::chrono::seconds kLongestLock{5};

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
                fmt::format("catalog {} is in use by process {}; end that one first, or name another folder (--folder)",
                            path.string(), size > 0 ? owner.data() : "(unknown)"));
  }
  const std::string self = std::to_string(::getpid());
  // Only for the message above: on a full disk it does without.
  if (::ftruncate(lock.get(), 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(lock.get(), self.data(), self.size(), 0);
  return lock;
}

void copy_when_unlocked(const std::filesystem::path& path, const std::filesystem::path& copy) {
  for (const Deadline deadline = Deadline::after(kLongestLock);; ::poll(nullptr, 0, kLockPauseMs)) {
    try {
      return Database(path, Database::Access::kRead).copy_to(copy);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || deadline.passed()) throw;
    }
  }
}

}  // namespace

Catalog::Catalog(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Catalog::~Catalog() = default;
Catalog::Catalog(Catalog&& other) noexcept = default;

Catalog Catalog::open(const std::filesystem::path& path, CatalogOptions options) {
  if (!options.now) options.now = wall_clock_us;
  auto store = std::make_unique<Store>(take_lock(path), path, std::move(options.now));
  migrate(store->database, schema_steps());
  repair(*store, options.repaired);
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
  copy_when_unlocked(path, copy);
  try {
    Database made(copy);
    migrate(made, schema_steps());
    made.run("UPDATE service SET backup_us = ?1, backup_view = ?2", wall_clock_us(), view_of_processes());
    made.be_one_file();
  } catch (const Error&) {
    for (const char* part : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(copy.string() + part, failure);
    throw;
  }
}

BackedUpCode Catalog::add_code(const std::filesystem::path& copy, const CodePlace& place) {
  BackedUpCode result;
  Catalog made(std::make_unique<Store>(UniqueFd(), copy, wall_clock_us));
  Database& database = made.store_->database;
  for (const CodeKey& code : made.jobs().code_of_unfinished()) {
    const UniqueFd file(::open(place(code).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
      std::ranges::copy(made.jobs().unfinished_with_code(code), std::back_inserter(result.jobs_without));
      continue;
    }
    Transaction transaction(database);
    database.run("INSERT INTO backup_code (workspace_id, code, archive) VALUES (?1, ?2, zeroblob(?3))", code.workspace,
                 code.sha256, status.st_size);
    database.write_blob("backup_code", "archive", database.last_insert_id(), file);
    transaction.commit();
    ++result.archives;
    result.bytes += static_cast<std::uint64_t>(status.st_size);
  }
  return result;
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

std::optional<BackupMark> Catalog::restored() {
  Query query(store_->database, "SELECT backup_us, backup_view, lease_ms FROM service");
  if (!query.next() || query.is_null(0)) return std::nullopt;
  return BackupMark{.made = query.integer(0), .view = query.text(1), .lease_ms = query.integer(2)};
}

void Catalog::skip_numbers() {
  constexpr Id kSkipped = 1'000'000;
  store_->database.run("UPDATE sqlite_sequence SET seq = seq + ?1 WHERE name = 'events'", kSkipped);
}

void Catalog::take_code(const CodePlace& place) {
  std::vector<std::pair<Id, CodeKey>> all;
  {
    Query query(store_->database, "SELECT id, workspace_id, code FROM backup_code ORDER BY id");
    while (query.next()) all.emplace_back(query.integer(0), CodeKey{query.integer(1), query.text(2)});
  }
  for (const auto& [row, code] : all) {
    const std::filesystem::path file = place(code);
    std::error_code failure;
    if (!std::filesystem::exists(file, failure)) store_->database.read_blob("backup_code", "archive", row, file);
  }
  if (all.empty()) return;
  store_->database.run("DELETE FROM backup_code");
  store_->database.execute("VACUUM");  // It would stay as large as they were.
}

void Catalog::end_restore() { store_->database.run("UPDATE service SET backup_us = NULL, backup_view = ''"); }

void Catalog::note_lease(std::int64_t lease_ms) {
  Query query(store_->database, "SELECT 1 FROM service WHERE lease_ms = ?1", lease_ms);
  if (!query.next()) store_->database.run("UPDATE service SET lease_ms = ?1", lease_ms);
}

std::uint64_t Catalog::rows_read() const { return store_->database.rows_read(); }

void Catalog::together(const std::function<void()>& work) {
  Transaction transaction(store_->database);
  work();
  transaction.commit();
}

}  // namespace gyre::jobs::catalog
