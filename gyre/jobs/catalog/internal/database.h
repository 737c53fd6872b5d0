#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"

struct sqlite3;
struct sqlite3_stmt;

namespace gyre::jobs::catalog {

class Query;

/// A connection to one SQLite file. Failures are gyre::Error that name the file, say what is the matter in plain words
/// and what to do about it. Not thread-safe.
class Database {
 public:
  enum class Access {
    kWrite,
    kRead,  ///< Beside the one that writes, whose whole transactions it sees.
  };

  /// Opens the file. To write: makes it where there is none, only for its owner to read, and checks that it is whole.
  explicit Database(std::filesystem::path path, Access access = Access::kWrite);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// From now on, and for good, changes go to a log first. Readers in other processes see whole transactions only;
  /// where the disk is too full for the index that they share with us, they are locked out until this is closed.
  void use_write_ahead_log();
  /// One or several statements without parameters or results.
  void execute(const std::string& sql);
  /// A statement whose results, if it has any, do not matter. Returns how many rows it changed.
  template <typename... Values>
  int run(std::string_view sql, const Values&... values);
  /// All of it as it is at one moment, to a new file for its owner alone. Where it fails there is no file.
  void copy_to(const std::filesystem::path& file);
  /// No other file belongs to it from now on, until use_write_ahead_log().
  void be_one_file();
  /// The whole file's bytes to a value that has as many.
  void write_blob(const std::string& table, const std::string& column, std::int64_t row, const UniqueFd& file);
  /// Such a value to a new file, for its owner alone and durable; it appears once it is whole. Makes its folder.
  void read_blob(const std::string& table, const std::string& column, std::int64_t row,
                 const std::filesystem::path& file);
  std::int64_t last_insert_id() const;
  int changes() const;
  std::uint64_t rows_read() const { return rows_read_; }

 private:
  class Blob;
  friend class Query;
  friend class Transaction;
  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalizer>;

  /// Of the log's pages: in a file that all connections share, or in the memory of this one, which keeps others out.
  enum class Index { kShared, kOwn };

  void open(Index index);
  void open_to_read();
  void close();
  /// Writes a long log into the file, if no statement of ours is on its way through its rows.
  void shorten_log();
  Statement borrow(std::string_view sql);
  void give_back(Statement statement);
  [[noreturn]] void fail(int result) const;
  void check(int result) const;

  std::filesystem::path path_;
  sqlite3* handle_ = nullptr;
  std::multimap<std::string, Statement, std::less<>> statements_;  ///< Prepared and not in use.
  int depth_ = 0;                                                  ///< Of transactions.
  int pages_in_log_ = 0;
  std::uint64_t rows_read_ = 0;
  bool spoiled_ = false;  ///< A part of the open transaction failed.
};

/// A statement on its way through its rows. Values are bound to ?1, ?2, …
class Query {
 public:
  template <typename... Values>
  Query(Database& database, std::string_view sql, const Values&... values)
      : database_(database), statement_(database.borrow(sql)) {
    int index = 0;
    (bind(++index, values), ...);
  }
  ~Query();
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  /// Steps to the next row; false when there is none.
  bool next();

  std::int64_t integer(int column) const;
  std::string text(int column) const;
  bool is_null(int column) const;
  std::optional<std::int64_t> maybe_integer(int column) const;
  std::optional<std::string> maybe_text(int column) const;

 private:
  void bind(int index, std::int64_t value);
  void bind(int index, int value) { bind(index, static_cast<std::int64_t>(value)); }
  void bind(int index, std::string_view value);
  void bind(int index, const char* value) { bind(index, std::string_view(value)); }
  template <typename Value>
  void bind(int index, const std::optional<Value>& value) {
    if (value) bind(index, *value);  // Unbound parameters are NULL.
  }

  Database& database_;
  Database::Statement statement_;
};

template <typename... Values>
int Database::run(std::string_view sql, const Values&... values) {
  Query query(*this, sql, values...);
  while (query.next()) {
  }
  return changes();
}

/// All or nothing of what is done until commit(). A transaction within another one is a part of it: only the outermost
/// commit() writes, and it refuses, writing nothing, where a part ended without its commit().
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace gyre::jobs::catalog
