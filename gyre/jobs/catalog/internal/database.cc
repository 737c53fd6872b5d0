#include "gyre/jobs/catalog/internal/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>

#include "gyre/base/check.h"
#include "gyre/base/file.h"

namespace gyre::jobs::catalog {
namespace {

/// Another program that looks into the file, such as a backup, locks it for moments only.
constexpr int kBusyTimeoutMs = 5'000;
constexpr std::size_t kPartBytes = std::size_t{1} << 20;  // Of a long value.
constexpr int kLongLogPages = 4096;                       // 16 MB.

Error translated(const std::string& path, int code, int system_errno, const std::string& details) {
  const auto with = [&](ErrorCode kind, std::string_view what) {
    return Error(kind, fmt::format("catalog {}: {} ({})", path, what, details));
  };
  if (system_errno == ENOSPC || system_errno == EDQUOT) code = SQLITE_FULL;
  switch (code & 0xff) {
    case SQLITE_FULL:
      return with(ErrorCode::kResourceExhausted,
                  "the disk is full; nothing was changed. Free some space there and try again");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return with(
          ErrorCode::kCorruptData,
          "the file is damaged or not a catalog; nothing was changed. Restore it from a backup, or move it away to "
          "start with an empty one");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return with(
          ErrorCode::kIo,
          "it cannot be written; nothing was changed. Check who owns the file and its folder, and whether the file "
          "system is read-only");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return with(ErrorCode::kTimeout, "another program keeps it locked; nothing was changed. End that program");
    case SQLITE_IOERR:
      return with(ErrorCode::kIo, fmt::format("reading or writing failed: {}; nothing was changed. Check the disk",
                                              system_errno != 0 ? std::strerror(system_errno) : "unknown cause"));
    case SQLITE_NOMEM: return with(ErrorCode::kResourceExhausted, "out of memory; nothing was changed");
    default: return with(ErrorCode::kInternal, "an unexpected failure; nothing was changed");
  }
}

}  // namespace

void Database::Finalizer::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Database::Database(std::filesystem::path path, Access access) : path_(std::move(path)) {
  if (access == Access::kRead) {
    open_to_read();
    return;
  }
  // SQLite would make it readable for all; it holds secrets.
  const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) {
    const int reason = errno;
    const bool full = reason == ENOSPC || reason == EDQUOT;
    throw translated(path_, full ? SQLITE_FULL : SQLITE_CANTOPEN, reason, std::strerror(reason));
  }
  try {
    open(Index::kShared);
  } catch (const Error& error) {
    close();
    // A disk without room for the shared index of the log has room for nothing else either, but what is there can be
    // read.
    if (error.code() != ErrorCode::kResourceExhausted && error.code() != ErrorCode::kIo) throw;
    try {
      open(Index::kOwn);
    } catch (const Error&) {
      close();
      throw error;
    }
  }
}

void Database::open_to_read() {
  const auto open = [this](int flags) {
    check(sqlite3_open_v2(path_.c_str(), &handle_, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr));
    execute("PRAGMA trusted_schema = OFF; PRAGMA query_only = ON;");
    Query first(*this, "SELECT 1 FROM sqlite_schema LIMIT 1");  // Fails where the other one keeps the file to itself.
    first.next();
  };
  try {
    try {
      open(SQLITE_OPEN_READONLY);
    } catch (const Error&) {
      // A service was killed in its first change, before the catalog had a write-ahead log. Whoever can write undoes
      // that change, as the next service would.
      if (handle_ == nullptr || sqlite3_extended_errcode(handle_) != SQLITE_READONLY_ROLLBACK) throw;
      close();
      open(SQLITE_OPEN_READWRITE);
    }
  } catch (...) {
    close();
    throw;
  }
}

void Database::close() {
  statements_.clear();
  sqlite3_close_v2(handle_);
  handle_ = nullptr;
}

void Database::open(Index index) {
  check(sqlite3_open_v2(path_.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                        nullptr));
  check(sqlite3_busy_timeout(handle_, kBusyTimeoutMs));
  // Before the first access: the index is then kept in memory.
  if (index == Index::kOwn) execute("PRAGMA locking_mode = EXCLUSIVE");
  // FULL: a confirmed change survives a power failure too. Deleted secrets are overwritten.
  execute(
      "PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF; PRAGMA synchronous = FULL;");
  Query whole(*this, "PRAGMA quick_check(1)");
  if (whole.next() && whole.text(0) != "ok") throw translated(path_, SQLITE_CORRUPT, 0, whole.text(0));
}

void Database::use_write_ahead_log() {
  execute("PRAGMA journal_mode = WAL");
  // In place of SQLite's own way, which shortens the log within a commit, and not at all while a query of the same
  // connection has not come to its last row.
  const auto note = [](void* self, sqlite3*, const char*, int pages) {
    static_cast<Database*>(self)->pages_in_log_ = pages;
    return SQLITE_OK;
  };
  sqlite3_wal_hook(handle_, note, this);
}

void Database::shorten_log() {
  if (depth_ > 0 || pages_in_log_ < kLongLogPages) return;
  int left = 0;
  int written = 0;
  // A refusal is not a failure: a reader needs the log as it is, or the disk is full, which the next change will say.
  if (sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_PASSIVE, &left, &written) == SQLITE_OK) {
    pages_in_log_ = left - written;
  }
}

Database::~Database() { close(); }

void Database::copy_to(const std::filesystem::path& file) {
  constexpr int kAllPages = -1;
  const UniqueFd made(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made) throw system_error(fmt::format("cannot write {}", file.string()), errno);
  sqlite3* copy = nullptr;
  int result = sqlite3_open_v2(file.c_str(), &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                               nullptr);
  if (result == SQLITE_OK) {
    sqlite3_backup* backup = sqlite3_backup_init(copy, "main", handle_, "main");
    const int step = backup != nullptr ? sqlite3_backup_step(backup, kAllPages) : SQLITE_DONE;
    result = backup != nullptr ? sqlite3_backup_finish(backup) : sqlite3_extended_errcode(copy);
    if (result == SQLITE_OK && step != SQLITE_DONE) result = step;  // The other one keeps the file to itself.
  }
  const int reason = sqlite3_system_errno(copy);
  sqlite3_close_v2(copy);
  if (result == SQLITE_OK && ::fsync(made.get()) == 0) return;
  const int failure = result == SQLITE_OK ? errno : reason;
  ::unlink(file.c_str());
  throw translated(file, result == SQLITE_OK ? SQLITE_IOERR : result, failure, sqlite3_errstr(result));
}

void Database::check(int result) const {
  if (result != SQLITE_OK) fail(result);
}

void Database::fail(int result) const {
  const bool of_files =
      (result & 0xff) == SQLITE_IOERR || (result & 0xff) == SQLITE_FULL || (result & 0xff) == SQLITE_CANTOPEN;
  throw translated(path_, result, of_files && handle_ != nullptr ? sqlite3_system_errno(handle_) : 0,
                   handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(result));
}

void Database::execute(const std::string& sql) { check(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr)); }

void Database::be_one_file() { execute("PRAGMA journal_mode = DELETE"); }

/// A value that is read or written in parts.
class Database::Blob {
 public:
  Blob(const Database& database, const std::string& table, const std::string& column, std::int64_t row, bool writable)
      : database_(database) {
    const int result =
        sqlite3_blob_open(database.handle_, "main", table.c_str(), column.c_str(), row, writable ? 1 : 0, &handle_);
    if (result == SQLITE_OK) return;
    sqlite3_blob_close(handle_);
    database.fail(result);
  }
  ~Blob() { sqlite3_blob_close(handle_); }
  Blob(const Blob&) = delete;
  Blob& operator=(const Blob&) = delete;

  int size() const { return sqlite3_blob_bytes(handle_); }
  void write(std::span<const std::byte> bytes, int at) {
    database_.check(sqlite3_blob_write(handle_, bytes.data(), static_cast<int>(bytes.size()), at));
  }
  void read(std::span<std::byte> bytes, int at) {
    database_.check(sqlite3_blob_read(handle_, bytes.data(), static_cast<int>(bytes.size()), at));
  }

 private:
  const Database& database_;
  sqlite3_blob* handle_ = nullptr;
};

void Database::write_blob(const std::string& table, const std::string& column, std::int64_t row, const UniqueFd& file) {
  Blob blob(*this, table, column, row, true);
  std::vector<std::byte> bytes(kPartBytes);
  for (int at = 0; at < blob.size();) {
    const ssize_t count =
        ::read(file.get(), bytes.data(), std::min(bytes.size(), static_cast<std::size_t>(blob.size() - at)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw system_error("cannot read an archive of code", errno);
    if (count == 0) throw Error(ErrorCode::kIo, "an archive of code became shorter while it was read");
    blob.write(std::span(bytes).first(static_cast<std::size_t>(count)), at);
    at += static_cast<int>(count);
  }
}

void Database::read_blob(const std::string& table, const std::string& column, std::int64_t row,
                         const std::filesystem::path& file) {
  std::error_code failure;
  std::filesystem::create_directories(file.parent_path(), failure);
  if (failure) throw system_error(fmt::format("cannot write {}", file.string()), failure.value());
  const std::filesystem::path draft = file.string() + ".restored";
  const UniqueFd made(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made) throw system_error(fmt::format("cannot write {}", draft.string()), errno);
  Blob blob(*this, table, column, row, false);
  std::vector<std::byte> bytes(kPartBytes);
  for (int at = 0; at < blob.size();) {
    const auto part = std::span(bytes).first(std::min(bytes.size(), static_cast<std::size_t>(blob.size() - at)));
    blob.read(part, at);
    write_all(made.get(), part, draft.string());
    at += static_cast<int>(part.size());
  }
  if (::fsync(made.get()) != 0) throw system_error(fmt::format("cannot write {}", draft.string()), errno);
  std::filesystem::rename(draft, file, failure);
  if (failure) throw system_error(fmt::format("cannot write {}", file.string()), failure.value());
}

std::int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }

int Database::changes() const { return sqlite3_changes(handle_); }

Database::Statement Database::borrow(std::string_view sql) {
  const auto found = statements_.find(sql);
  if (found != statements_.end()) {
    Statement statement = std::move(found->second);
    statements_.erase(found);
    return statement;
  }
  sqlite3_stmt* made = nullptr;
  check(
      sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &made, nullptr));
  return Statement(made);
}

void Database::give_back(Statement statement) {
  sqlite3_reset(statement.get());
  // Values must not linger: some are secrets.
  sqlite3_clear_bindings(statement.get());
  std::string sql = sqlite3_sql(statement.get());
  statements_.emplace(std::move(sql), std::move(statement));
}

Query::~Query() { database_.give_back(std::move(statement_)); }

bool Query::next() {
  const int result = sqlite3_step(statement_.get());
  if (result != SQLITE_ROW && result != SQLITE_DONE) database_.fail(result);
  if (result == SQLITE_ROW) ++database_.rows_read_;
  return result == SQLITE_ROW;
}

std::int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

bool Query::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

std::optional<std::int64_t> Query::maybe_integer(int column) const {
  return is_null(column) ? std::nullopt : std::optional(integer(column));
}

std::optional<std::string> Query::maybe_text(int column) const {
  return is_null(column) ? std::nullopt : std::optional(text(column));
}

void Query::bind(int index, std::int64_t value) { database_.check(sqlite3_bind_int64(statement_.get(), index, value)); }

void Query::bind(int index, std::string_view value) {
  // A null pointer would become NULL.
  const char* bytes = value.data() != nullptr ? value.data() : "";
  database_.check(sqlite3_bind_text64(statement_.get(), index, bytes, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

Transaction::Transaction(Database& database) : database_(database) {
  if (database_.depth_ == 0) {
    database_.spoiled_ = false;
    database_.run("BEGIN IMMEDIATE");
  }
  ++database_.depth_;
}

Transaction::~Transaction() {
  if (!open_) {
    database_.shorten_log();  // The queries that were made for the change are over, too.
    return;
  }
  database_.spoiled_ = true;
  // Some failures have rolled it back already.
  if (--database_.depth_ == 0 && sqlite3_get_autocommit(database_.handle_) == 0) {
    sqlite3_exec(database_.handle_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  GYRE_CHECK(open_);
  if (database_.depth_ > 1) {
    --database_.depth_;
    open_ = false;
    return;
  }
  if (database_.spoiled_) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("catalog {}: a part of the change failed, so that nothing was changed", database_.path_.string()));
  }
  database_.run("COMMIT");
  --database_.depth_;
  open_ = false;
}

}  // namespace gyre::jobs::catalog
